//! One binary: a module a subject. Tests are named after the rules of the specification.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod support;

mod driver;
mod machine;
mod properties;
#[cfg(all(feature = "tokio", feature = "blocking"))]
mod shells;
mod table;
