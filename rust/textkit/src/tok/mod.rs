//! Tokenizers: one object per model folder, immutable after loading.

pub mod added;
pub mod alphabet;
pub mod bounds;
pub mod bytebpe;
pub mod covers;
pub mod hfcrate;
pub mod hfjson;
pub mod options;
pub mod pretok;
pub mod spm;
pub mod spm_merge;
pub mod spm_model;
pub mod tiktoken;

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

use added::{AddedTokens, Piece};
use bounds::Bounds;
pub use options::{AddedToken, Options};

pub const PRESENT: u8 = 1;
pub const SPECIAL: u8 = 2;
pub const BYTE: u8 = 4;
pub const ADDED: u8 = 8;

/// The bytes of every id: `blob[offsets[id]..offsets[id + 1]]`.
#[derive(Default)]
pub struct Table {
    pub blob: Vec<u8>,
    pub offsets: Vec<u32>,
    pub flags: Vec<u8>,
    /// Bytes of the longest token.
    pub longest: usize,
}

/// How a decoder joins tokens; see token_table.h.
#[derive(Clone, Copy, Default)]
pub struct Rules {
    pub sentencepiece: bool,
    pub strip_first_space: bool,
}

pub enum Engine {
    /// Any tokenizer.json that has no faster form here.
    Crate(Box<tokenizers::Tokenizer>, covers::Covers),
    ByteBpe(Box<bytebpe::ByteBpe>),
    Spm(Box<spm::Spm>),
}

pub struct Tok {
    pub engine: Engine,
    /// Added tokens of the engines of our own (the crate has its own).
    pub added: AddedTokens,
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    pub table: Table,
    pub rules: Rules,
    pub limits: Limits,
}

#[derive(Clone, Copy)]
pub struct Limits {
    pub vocab: usize,
    pub token_bytes: usize,
    pub text_bytes: usize,
}

pub type Res<T> = Result<T, Error>;

#[derive(Debug, Clone)]
pub enum Error {
    Corrupt(String),
    TooLarge(String),
    Unsupported(String),
    Text(String),
    /// More ids than the caller can use.
    TooMany,
    Cancelled,
}

pub fn corrupt<T>(message: impl Into<String>) -> Res<T> {
    Err(Error::Corrupt(message.into()))
}

impl Table {
    /// A table from (id, bytes, flags); ids may come in any order and leave holes.
    pub fn build(mut tokens: Vec<(u32, Vec<u8>, u8)>, limits: &Limits) -> Res<Table> {
        tokens.sort_by_key(|t| t.0);
        let size = tokens.last().map_or(0, |t| t.0 as usize + 1);
        if size > limits.vocab {
            return Err(Error::TooLarge(format!("token id {} is above the limit of {} ids", size - 1, limits.vocab)));
        }
        let mut table = Table { blob: Vec::new(), offsets: Vec::with_capacity(size + 1), flags: vec![0; size], longest: 0 };
        for (id, bytes, flags) in tokens {
            if bytes.len() > limits.token_bytes {
                return Err(Error::TooLarge(format!("token {id} is longer than {} bytes", limits.token_bytes)));
            }
            if table.offsets.len() > id as usize {
                return corrupt(format!("token id {id} is given twice"));
            }
            let start = table.blob.len() as u32;
            table.offsets.resize(id as usize + 1, start);
            table.longest = table.longest.max(bytes.len());
            table.blob.extend_from_slice(&bytes);
            if table.blob.len() > u32::MAX as usize {
                return Err(Error::TooLarge("the texts of all tokens exceed 4 GiB".into()));
            }
            table.flags[id as usize] = flags | PRESENT;
        }
        table.offsets.push(table.blob.len() as u32);
        Ok(table)
    }

    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        let at = id as usize;
        if self.flags.get(at)? & PRESENT == 0 {
            return None;
        }
        Some(&self.blob[self.offsets[at] as usize..self.offsets[at + 1] as usize])
    }
}

impl Tok {
    pub fn encode(&self, text: &str, add_special: bool) -> Res<Vec<u32>> {
        self.encode_within(text, add_special, usize::MAX, None)
    }

    /// The same ids when there are at most `most` of them, else TooMany, found out with little more work and memory than
    /// `most` ids cost where the kind of the tokenizer allows. `cancelled` is looked at between pieces.
    pub fn encode_within(&self, text: &str, add_special: bool, most: usize, cancelled: Option<&AtomicBool>) -> Res<Vec<u32>> {
        let bounds = Bounds { ids: most, longest: self.table.longest, cancelled };
        if text.len() > self.limits.text_bytes {
            return Err(Error::TooLarge(format!("the text is longer than {} bytes", self.limits.text_bytes)));
        }
        if let Engine::Crate(t, covers) = &self.engine {
            bounds.check_run(covers.least_bytes(text), 0)?;
            let encoding = t.encode_fast(text, add_special).map_err(|e| Error::Text(format!("cannot tokenize: {e}")))?;
            bounds.check(encoding.len())?;
            return Ok(encoding.get_ids().to_vec());
        }
        let mut ids = Vec::with_capacity((text.len() / 4 + 8).min(most));
        if add_special {
            ids.extend_from_slice(&self.prefix);
        }
        let mut first = true;
        self.added.split(text, |piece| {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(segment) => match &self.engine {
                    Engine::ByteBpe(b) => b.encode(segment, &bounds, &mut ids)?,
                    Engine::Spm(s) => s.encode(segment, first, &bounds, &mut ids)?,
                    Engine::Crate(..) => {}
                },
            }
            first = false;
            bounds.check(ids.len())
        })?;
        if add_special {
            ids.extend_from_slice(&self.suffix);
        }
        bounds.check(ids.len())?;
        Ok(ids)
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        if let Engine::Crate(t, _) = &self.engine {
            return t.token_to_id(token);
        }
        if let Some(id) = self.added.id_of(token) {
            return Some(id);
        }
        match &self.engine {
            Engine::ByteBpe(b) => b.id_of(&alphabet::to_bytes(token)?),
            Engine::Spm(s) => s.model.id_of(token),
            Engine::Crate(..) => None,
        }
    }

    pub fn id_to_token(&self, id: u32) -> Option<String> {
        if let Engine::Crate(t, _) = &self.engine {
            return t.id_to_token(id);
        }
        let bytes = self.table.bytes(id)?;
        if self.table.flags[id as usize] & ADDED != 0 {
            return Some(String::from_utf8_lossy(bytes).into_owned());
        }
        match &self.engine {
            Engine::Spm(s) => s.model.pieces.get(id as usize).map(|p| p.text.clone()),
            _ => Some(alphabet::to_text(bytes)),
        }
    }
}
