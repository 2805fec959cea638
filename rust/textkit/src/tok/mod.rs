//! Tokenizers: one object per model folder, immutable after loading.

pub mod added;
pub mod alphabet;
pub mod bytebpe;
pub mod hfjson;
pub mod options;
pub mod pretok;
pub mod spm;
pub mod spm_model;
pub mod tiktoken;

use added::{AddedTokens, Piece};
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
}

/// How a decoder joins tokens; see token_table.h.
#[derive(Clone, Copy, Default)]
pub struct Rules {
    pub sentencepiece: bool,
    pub strip_first_space: bool,
}

pub enum Engine {
    /// Any tokenizer.json that has no faster form here.
    Crate(Box<tokenizers::Tokenizer>),
    ByteBpe(bytebpe::ByteBpe),
    Spm(spm::Spm),
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
        let mut table = Table { blob: Vec::new(), offsets: Vec::with_capacity(size + 1), flags: vec![0; size] };
        for (id, bytes, flags) in tokens {
            if bytes.len() > limits.token_bytes {
                return Err(Error::TooLarge(format!("token {id} is longer than {} bytes", limits.token_bytes)));
            }
            if table.offsets.len() > id as usize {
                return corrupt(format!("token id {id} is given twice"));
            }
            let start = table.blob.len() as u32;
            table.offsets.resize(id as usize + 1, start);
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
        if text.len() > self.limits.text_bytes {
            return Err(Error::TooLarge(format!("the text is longer than {} bytes", self.limits.text_bytes)));
        }
        if let Engine::Crate(t) = &self.engine {
            let encoding = t.encode_fast(text, add_special).map_err(|e| Error::Text(format!("cannot tokenize: {e}")))?;
            return Ok(encoding.get_ids().to_vec());
        }
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        if add_special {
            ids.extend_from_slice(&self.prefix);
        }
        let mut first = true;
        let mut failure = None;
        self.added.split(text, |piece| match piece {
            Piece::Token(id) => {
                ids.push(id);
                first = false;
            }
            Piece::Text(segment) => {
                let done = match &self.engine {
                    Engine::ByteBpe(b) => {
                        b.encode(segment, &mut ids);
                        Ok(())
                    }
                    Engine::Spm(s) => s.encode(segment, first, &mut ids),
                    Engine::Crate(_) => Ok(()),
                };
                failure = failure.take().or(done.err());
                first = false;
            }
        });
        if let Some(e) = failure {
            return Err(e);
        }
        if add_special {
            ids.extend_from_slice(&self.suffix);
        }
        Ok(ids)
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        if let Engine::Crate(t) = &self.engine {
            return t.token_to_id(token);
        }
        if let Some(id) = self.added.id_of(token) {
            return Some(id);
        }
        match &self.engine {
            Engine::ByteBpe(b) => b.id_of(&alphabet::to_bytes(token)?),
            Engine::Spm(s) => s.model.id_of(token),
            Engine::Crate(_) => None,
        }
    }

    pub fn id_to_token(&self, id: u32) -> Option<String> {
        if let Engine::Crate(t) = &self.engine {
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
