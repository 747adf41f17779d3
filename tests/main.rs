//! One binary: a module a subject. Tests are named after the rules of the specification.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod support;

#[cfg(feature = "json")]
mod classify;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "json")]
mod delays;
mod machine;
mod properties;
#[cfg(feature = "json")]
mod settings;
mod shared;
mod table;
