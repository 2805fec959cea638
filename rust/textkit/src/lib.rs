//! Text handling of Tern behind one C header (include/textkit.h).

pub mod ffi;
pub mod grammar;
pub mod jinja;
pub mod tok;

#[cfg(test)]
mod random_texts;
