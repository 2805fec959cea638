//! Grammars for constrained output, over llguidance: compiled within limits, then asked for masks token by token.

mod cache;
pub mod compile;
pub mod env;
pub mod ffi;
pub mod gbnf;
pub mod json;
mod lark;
pub mod matcher;
mod place;
pub mod tag;

#[cfg(test)]
mod tests;

pub use compile::{Compiled, Kind, Limits, Options};
pub use env::Env;
pub use matcher::Matcher;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The text does not parse or contradicts itself.
    Invalid(String),
    /// Well-formed, but a part of it cannot be enforced.
    Unsupported(String),
    /// A limit was exceeded.
    TooLarge(String),
    Internal(String),
}

pub type Res<T> = Result<T, Error>;

impl Error {
    pub fn message(&self) -> &str {
        match self {
            Error::Invalid(m) | Error::Unsupported(m) | Error::TooLarge(m) | Error::Internal(m) => m,
        }
    }
}
