#![no_main]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::machine(data));
