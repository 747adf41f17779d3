#![no_main]

#[allow(dead_code, reason = "each target runs one of the bodies")]
#[path = "../../tests/fuzzing.rs"]
mod fuzzing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::texts::classifier(data));
