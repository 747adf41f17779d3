//! One binary: a module a subject. Tests are named after the rules of the specification.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks at what it is about"
)]
#![allow(clippy::disallowed_methods, reason = "tests are shells")]

mod support;

mod allocations;
mod api;

#[cfg(feature = "cli")]
mod ask;
#[cfg(feature = "cli")]
mod child;
#[cfg(feature = "json")]
mod classify;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "json")]
mod delays;
mod driver;
mod exhaustive;
#[cfg(feature = "rpc")]
mod fuzzing;
mod hints;
#[cfg(feature = "cli")]
mod hostile;
mod machine;
#[cfg_attr(
    not(feature = "rpc"),
    allow(dead_code, reason = "its fuzz body is replayed beside those of rpc")
)]
mod model;
#[cfg(feature = "cli")]
mod readme;
#[cfg(feature = "cli")]
mod rpc;
#[cfg(feature = "json")]
mod settings;
mod shared;
#[cfg(all(feature = "tokio", feature = "blocking"))]
mod shells;
#[cfg(all(feature = "status", feature = "blocking"))]
mod status;
mod table;
