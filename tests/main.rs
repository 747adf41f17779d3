//! One binary: a module a subject. Tests are named after the rules of the specification.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod support;

#[cfg(feature = "json")]
mod classify;
mod machine;
mod properties;
mod shared;
mod table;
