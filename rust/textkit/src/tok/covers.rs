//! How many bytes of a text the tokens of a tokenizer.json must hold, whatever the text: parts that drop or shorten text
//! are known by name.

use serde_json::Value;

use super::bytebpe::NFC_SHRINKS;
use super::{alphabet, Options};

#[derive(Clone, Copy)]
pub struct Covers {
    /// Every character ends in some token; otherwise nothing is known.
    all: bool,
    /// Except white space.
    drops_space: bool,
    /// Bytes of the text that one byte of a token may stand for.
    shrinks: usize,
}

fn kind(v: &Value) -> &str {
    v.get("type").and_then(Value::as_str).unwrap_or("")
}

fn parts<'v>(v: &'v Value, key: &str) -> Vec<&'v Value> {
    match v.get(key).and_then(Value::as_array) {
        Some(list) if kind(v) == "Sequence" => list.iter().flat_map(|p| parts(p, key)).collect(),
        _ if v.is_null() => Vec::new(),
        _ => vec![v],
    }
}

impl Covers {
    /// `replaced`: the decoder writes marks of several bytes as shorter text.
    pub fn of(file: &Value, replaced: bool, options: &Options) -> Covers {
        let null = Value::Null;
        let mut c = Covers { all: true, drops_space: false, shrinks: if replaced { 4 } else { 1 } };
        for part in parts(file.get("normalizer").unwrap_or(&null), "normalizers") {
            c.normalizer(part);
        }
        let mut byte_level = false;
        for part in parts(file.get("pre_tokenizer").unwrap_or(&null), "pretokenizers") {
            byte_level |= kind(part) == "ByteLevel";
            c.pre_tokenizer(part);
        }
        let model = file.get("model").unwrap_or(&null);
        let vocab = model.get("vocab").and_then(Value::as_object);
        let has = |name: String| vocab.is_some_and(|v| v.contains_key(&name));
        let byte_fallback = model.get("byte_fallback").and_then(Value::as_bool) == Some(true);
        c.all &= kind(model) == "BPE"
            && (byte_level && (0..=255u8).all(|b| has(alphabet::to_text(&[b])))
                || byte_fallback && (0..=255u8).all(|b| has(format!("<0x{b:02X}>"))));
        let strips = |t: &Value| ["lstrip", "rstrip"].iter().any(|k| t.get(k).and_then(Value::as_bool) == Some(true));
        let added = file.get("added_tokens").and_then(Value::as_array);
        c.drops_space |= added.is_some_and(|list| list.iter().any(strips));
        c.drops_space |= options.added_tokens.iter().any(|t| t.lstrip || t.rstrip);
        c
    }

    fn normalizer(&mut self, part: &Value) {
        match kind(part) {
            "Prepend" => {}
            "NFC" => self.shrinks *= NFC_SHRINKS,
            "Strip" => self.drops_space = true,
            "Replace" => {
                let from = part.get("pattern").and_then(|p| p.get("String")).and_then(Value::as_str);
                let to = part.get("content").and_then(Value::as_str);
                self.all &= matches!((from, to), (Some(from), Some(to)) if to.len() >= from.len());
            }
            _ => self.all = false,
        }
    }

    fn pre_tokenizer(&mut self, part: &Value) {
        let removes = part.get("behavior").and_then(Value::as_str) == Some("Removed");
        match kind(part) {
            "ByteLevel" | "Metaspace" | "Digits" => {}
            "Split" | "Punctuation" if !removes => {}
            "WhitespaceSplit" => self.drops_space = true,
            _ => self.all = false,
        }
    }

    /// At least so many bytes are in the tokens of the text.
    pub fn least_bytes(&self, text: &str) -> usize {
        if !self.all {
            return 0;
        }
        let kept =
            if self.drops_space { text.chars().filter(|c| !c.is_whitespace()).map(char::len_utf8).sum() } else { text.len() };
        kept / self.shrinks
    }
}
