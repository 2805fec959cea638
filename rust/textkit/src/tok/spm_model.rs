//! SentencePiece model files: the protocol buffer, read with bounds, and the text normaliser it describes.

use std::collections::HashMap;

use super::bytebpe::FastMap;
use super::{corrupt, Error, Limits, Res};

pub const SPACE_MARK: char = '\u{2581}';

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

pub struct PieceInfo {
    pub text: String,
    pub score: f32,
    pub kind: Kind,
}

pub struct Model {
    pub pieces: Vec<PieceInfo>,
    pub unigram: bool,
    pub byte_fallback: bool,
    pub suffix_whitespace: bool,
    pub unk_id: u32,
    pub bos_id: i64,
    pub eos_id: i64,
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
    charsmap: Vec<u8>,
    /// Normal, user-defined and unused pieces: what text can become.
    pub by_text: FastMap<Box<[u8]>, u32>,
    reserved: HashMap<String, u32>,
    pub byte_ids: Option<Box<[u32; 256]>>,
    user_defined: Option<aho_corasick::AhoCorasick>,
    /// Bytes with which user-defined pieces start.
    user_defined_start: [bool; 256],
    /// No piece has a space mark after another character: what stands before a space and what follows never merge.
    pub words_apart: bool,
}

/// A field of a protocol buffer message.
enum Field<'a> {
    Int(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

struct Reader<'a> {
    data: &'a [u8],
}

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Res<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some((&b, rest)) = self.data.split_first() else { return corrupt("the model file ends early") };
            self.data = rest;
            value |= ((b & 0x7f) as u64) << shift;
            if b < 0x80 {
                return Ok(value);
            }
        }
        corrupt("a number in the model file is too long")
    }

    fn take(&mut self, n: usize) -> Res<&'a [u8]> {
        if n > self.data.len() {
            return corrupt("the model file ends early");
        }
        let (head, rest) = self.data.split_at(n);
        self.data = rest;
        Ok(head)
    }

    fn next(&mut self) -> Res<Option<(u64, Field<'a>)>> {
        if self.data.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Int(self.varint()?),
            1 => {
                self.take(8)?;
                Field::Int(0)
            }
            2 => {
                let n = usize::try_from(self.varint()?).map_err(|_| Error::Corrupt("a length is too large".into()))?;
                Field::Bytes(self.take(n)?)
            }
            5 => {
                let b = self.take(4)?;
                Field::Fixed32(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            }
            _ => return corrupt("this is not a SentencePiece model"),
        };
        Ok(Some((key >> 3, field)))
    }
}

fn piece(data: &[u8]) -> Res<PieceInfo> {
    let mut out = PieceInfo { text: String::new(), score: 0.0, kind: Kind::Normal };
    let mut r = Reader { data };
    while let Some(field) = r.next()? {
        match field {
            (1, Field::Bytes(b)) => {
                out.text = String::from_utf8(b.to_vec()).map_err(|_| Error::Corrupt("a piece is not valid UTF-8".into()))?
            }
            (2, Field::Fixed32(bits)) => out.score = f32::from_bits(bits),
            (3, Field::Int(n)) => {
                out.kind = match n {
                    1 => Kind::Normal,
                    2 => Kind::Unknown,
                    3 => Kind::Control,
                    4 => Kind::UserDefined,
                    5 => Kind::Unused,
                    6 => Kind::Byte,
                    _ => return corrupt(format!("a piece has the unknown type {n}")),
                }
            }
            _ => {}
        }
    }
    if out.score.is_nan() {
        return corrupt("the score of a piece is not a number");
    }
    Ok(out)
}

impl Model {
    pub fn parse(data: &[u8], limits: &Limits) -> Res<Model> {
        let mut m = Model {
            pieces: Vec::new(),
            unigram: true,
            byte_fallback: false,
            suffix_whitespace: false,
            unk_id: 0,
            bos_id: 1,
            eos_id: 2,
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
            charsmap: Vec::new(),
            by_text: FastMap::default(),
            reserved: HashMap::new(),
            byte_ids: None,
            user_defined: None,
            user_defined_start: [false; 256],
            words_apart: false,
        };
        let mut r = Reader { data };
        while let Some(field) = r.next()? {
            match field {
                (1, Field::Bytes(b)) => {
                    let p = piece(b)?;
                    if m.pieces.len() >= limits.vocab || p.text.len() > limits.token_bytes {
                        return Err(Error::TooLarge("too many pieces, or too long ones".into()));
                    }
                    m.pieces.push(p);
                }
                (2, Field::Bytes(b)) => m.trainer(b)?,
                (3, Field::Bytes(b)) => m.normalizer(b)?,
                _ => {}
            }
        }
        m.index()?;
        Ok(m)
    }

    fn trainer(&mut self, data: &[u8]) -> Res<()> {
        let mut r = Reader { data };
        while let Some(field) = r.next()? {
            match field {
                (3, Field::Int(1)) => self.unigram = true,
                (3, Field::Int(2)) => self.unigram = false,
                (3, Field::Int(_)) => {
                    return Err(Error::Unsupported("only BPE and unigram SentencePiece models are supported".into()))
                }
                (24, Field::Int(n)) => self.suffix_whitespace = n != 0,
                (35, Field::Int(n)) => self.byte_fallback = n != 0,
                (41, Field::Int(n)) => self.bos_id = n as i32 as i64,
                (42, Field::Int(n)) => self.eos_id = n as i32 as i64,
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, data: &[u8]) -> Res<()> {
        let mut r = Reader { data };
        while let Some(field) = r.next()? {
            match field {
                (2, Field::Bytes(b)) => self.charsmap = b.to_vec(),
                (3, Field::Int(n)) => self.add_dummy_prefix = n != 0,
                (4, Field::Int(n)) => self.remove_extra_whitespaces = n != 0,
                (5, Field::Int(n)) => self.escape_whitespaces = n != 0,
                _ => {}
            }
        }
        if !self.charsmap.is_empty() {
            let size = self.charsmap.get(..4).map_or(usize::MAX, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
            if size % 4 != 0 || size == 0 || size > self.charsmap.len() - 4 {
                return corrupt("the normalisation table is broken");
            }
        }
        Ok(())
    }

    fn index(&mut self) -> Res<()> {
        if self.pieces.is_empty() {
            return corrupt("the model has no pieces");
        }
        let mut bytes = [u32::MAX; 256];
        let mut unknown = None;
        for (id, p) in self.pieces.iter().enumerate() {
            let id = id as u32;
            if p.text.is_empty() {
                return corrupt(format!("piece {id} is empty"));
            }
            let text_like = matches!(p.kind, Kind::Normal | Kind::UserDefined | Kind::Unused);
            let before = if text_like {
                self.by_text.insert(p.text.as_bytes().into(), id)
            } else {
                self.reserved.insert(p.text.clone(), id)
            };
            if before.is_some() {
                return corrupt(format!("the piece '{}' is defined twice", p.text.escape_debug()));
            }
            match p.kind {
                Kind::Unknown if unknown.is_some() => return corrupt("there are two unknown pieces"),
                Kind::Unknown => unknown = Some(id),
                Kind::Byte => {
                    let hex = p.text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>')).filter(|h| h.len() == 2);
                    let Some(b) = hex.and_then(|h| u8::from_str_radix(h, 16).ok()) else {
                        return corrupt(format!("'{}' is no byte piece", p.text));
                    };
                    bytes[b as usize] = id;
                }
                _ => {}
            }
        }
        self.unk_id = unknown.ok_or_else(|| Error::Corrupt("the model has no unknown piece".into()))?;
        if self.byte_fallback {
            if bytes.contains(&u32::MAX) {
                return corrupt("byte fallback is on, but not all 256 byte pieces are there");
            }
            self.byte_ids = Some(Box::new(bytes));
        }
        let user: Vec<&str> = self.pieces.iter().filter(|p| p.kind == Kind::UserDefined).map(|p| p.text.as_str()).collect();
        self.words_apart =
            self.escape_whitespaces && self.pieces.iter().all(|p| !p.text.trim_start_matches(SPACE_MARK).contains(SPACE_MARK));
        if !user.is_empty() {
            for text in &user {
                self.user_defined_start[text.as_bytes()[0] as usize] = true;
            }
            let built = aho_corasick::AhoCorasick::builder()
                .match_kind(aho_corasick::MatchKind::LeftmostLongest)
                .start_kind(aho_corasick::StartKind::Anchored)
                .build(user)
                .map_err(|e| Error::TooLarge(e.to_string()))?;
            self.user_defined = Some(built);
        }
        Ok(())
    }

    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.reserved.get(text).or_else(|| self.by_text.get(text.as_bytes())).copied()
    }

    /// Whether normalize() drops nothing and makes nothing shorter.
    pub fn keeps_bytes(&self) -> bool {
        self.charsmap.is_empty() && !self.remove_extra_whitespaces
    }

    /// Length of the longest user-defined piece that starts the text, 0 when none does.
    pub fn user_defined_prefix(&self, text: &str) -> usize {
        let may_start = text.as_bytes().first().is_some_and(|&b| self.user_defined_start[b as usize]);
        let Some(finder) = self.user_defined.as_ref().filter(|_| may_start) else { return 0 };
        finder.find(aho_corasick::Input::new(text).anchored(aho_corasick::Anchored::Yes)).map_or(0, |m| m.end())
    }

    /// The text and length in bytes of what the start of `text` becomes.
    fn normalize_prefix<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        let user = self.user_defined_prefix(text);
        if user > 0 {
            return (&text[..user], user);
        }
        if let Some(found) = self.mapped(text) {
            return found;
        }
        let n = text.chars().next().map_or(0, char::len_utf8);
        (&text[..n], n)
    }

    /// The longest entry of the normalisation table: a double-array trie of 32-bit units, then the replacements.
    fn mapped<'a>(&'a self, text: &str) -> Option<(&'a str, usize)> {
        let size = u32::from_le_bytes(self.charsmap.get(..4)?.try_into().ok()?) as usize;
        let (trie, replacements) = (self.charsmap.get(4..4 + size)?, &self.charsmap[4 + size..]);
        let unit = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(trie.get(at * 4..at * 4 + 4)?.try_into().ok()?)) };
        let offset = |u: u32| ((u >> 10) << ((u & (1 << 9)) >> 6)) as usize;
        let mut at = offset(unit(0)?);
        let mut best = None;
        for (i, &b) in text.as_bytes().iter().enumerate() {
            at ^= b as usize;
            let Some(u) = unit(at) else { break };
            if u & ((1 << 31) | 0xff) != b as u32 {
                break;
            }
            at ^= offset(u);
            if (u >> 8) & 1 == 1 {
                let Some(leaf) = unit(at) else { break };
                best = Some(((leaf & 0x7fff_ffff) as usize, i + 1));
            }
        }
        let (start, len) = best.filter(|b| text.is_char_boundary(b.1))?;
        let tail = replacements.get(start..)?;
        let end = tail.iter().position(|&b| b == 0)?;
        Some((std::str::from_utf8(&tail[..end]).ok()?, len))
    }

    /// SentencePiece's Normalize: table, white space to U+2581, dummy prefix.
    pub fn normalize(&self, text: &str, dummy_prefix: bool) -> String {
        let space = if self.escape_whitespaces { "\u{2581}" } else { " " };
        let mut rest = text;
        let mut out = String::with_capacity(text.len() + text.len() / 4 + 3);
        if self.remove_extra_whitespaces {
            while !rest.is_empty() {
                let (to, n) = self.normalize_prefix(rest);
                if to != " " {
                    break;
                }
                rest = &rest[n..];
            }
        }
        if rest.is_empty() {
            return out;
        }
        if dummy_prefix && self.add_dummy_prefix && !self.suffix_whitespace {
            out.push_str(space);
        }
        let mut previous_space = self.remove_extra_whitespaces;
        while !rest.is_empty() {
            let (mut to, n) = self.normalize_prefix(rest);
            if previous_space {
                to = to.trim_start_matches(' ');
            }
            if !to.is_empty() {
                for c in to.chars() {
                    if c == ' ' {
                        out.push_str(space);
                    } else {
                        out.push(c);
                    }
                }
                previous_space = to.ends_with(' ');
            }
            if !self.remove_extra_whitespaces {
                previous_space = false;
            }
            rest = &rest[n..];
        }
        if self.remove_extra_whitespaces {
            while out.ends_with(space) {
                out.truncate(out.len() - space.len());
            }
        }
        if dummy_prefix && self.add_dummy_prefix && self.suffix_whitespace {
            out.push_str(space);
        }
        out
    }
}
