//! tokenizer.json. Byte-level BPE with a known pattern goes to our engine, everything else to the Hugging Face crate.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::added::AddedTokens;
use super::bytebpe::{ByteBpe, FastMap};
use super::pretok::Pattern;
use super::{alphabet, corrupt, AddedToken, Engine, Error, Options, Res, Rules, Table, Tok, ADDED, SPECIAL};

#[derive(Deserialize)]
struct File<'a> {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(borrow)]
    model: Model<'a>,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    vocab: Vocab<'a>,
    #[serde(borrow, default)]
    merges: Vec<Merge<'a>>,
    #[serde(default)]
    dropout: Value,
    #[serde(default)]
    unk_token: Value,
    #[serde(default)]
    continuing_subword_prefix: Value,
    #[serde(default)]
    end_of_word_suffix: Value,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// The vocabulary as pairs in file order (a map would cost a second hashing).
#[derive(Default)]
struct Vocab<'a>(Vec<(Text<'a>, u32)>);

impl<'de: 'a, 'a> Deserialize<'de> for Vocab<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> serde::de::Visitor<'de> for Visit {
            type Value = Vocab<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a map of tokens to ids")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Vocab<'de>, A::Error> {
                let mut out = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    out.push(entry);
                }
                Ok(Vocab(out))
            }
        }
        d.deserialize_map(Visit)
    }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge<'a> {
    Pair(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>),
    Joined(#[serde(borrow)] Text<'a>),
}

pub(super) fn kind(v: &Value) -> &str {
    v.get("type").and_then(Value::as_str).unwrap_or("")
}

fn empty(v: &Value) -> bool {
    v.is_null() || v.as_str() == Some("")
}

pub(super) fn list<'v>(v: &'v Value, key: &str) -> &'v [Value] {
    v.get(key).and_then(Value::as_array).map_or(&[], |a| a.as_slice())
}

pub fn load(json: &str, options: &Options) -> Res<Tok> {
    options.check()?;
    if let Ok(file) = serde_json::from_str::<File>(json) {
        if let Some(shape) = recognise(&file) {
            return fast(file, shape, options);
        }
    }
    super::hfcrate::load(json, options)
}

struct Shape {
    pattern: Pattern,
    nfc: bool,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

/// Whether the parts are those that our byte-level engine has.
fn recognise(f: &File) -> Option<Shape> {
    let m = &f.model;
    let plain = m.kind.as_deref().unwrap_or("BPE") == "BPE"
        && m.dropout.is_null()
        && m.unk_token.is_null()
        && empty(&m.continuing_subword_prefix)
        && empty(&m.end_of_word_suffix)
        && !m.byte_fallback;
    let nfc = kind(&f.normalizer) == "NFC";
    if !plain || !(f.normalizer.is_null() || nfc) || kind(&f.decoder) != "ByteLevel" {
        return None;
    }
    if nfc && f.added_tokens.iter().any(|t| t.normalized && !t.content.is_ascii()) {
        return None;
    }
    let flag = |v: &Value, key: &str, default: bool| v.get(key).and_then(Value::as_bool).unwrap_or(default);
    let byte_level = |v: &Value, use_regex: bool| {
        kind(v) == "ByteLevel" && !flag(v, "add_prefix_space", true) && flag(v, "use_regex", true) == use_regex
    };
    let pattern = match list(&f.pre_tokenizer, "pretokenizers") {
        [] if byte_level(&f.pre_tokenizer, true) => Pattern::Gpt2,
        [split, bytes] if kind(split) == "Split" && byte_level(bytes, false) => {
            let isolated = split.get("behavior").and_then(Value::as_str) == Some("Isolated") && !flag(split, "invert", false);
            let regex = split.get("pattern")?.get("Regex")?.as_str()?;
            Pattern::by_regex(regex).filter(|_| isolated)?
        }
        _ => return None,
    };
    let mut shape = Shape { pattern, nfc, prefix: Vec::new(), suffix: Vec::new() };
    let alone = std::slice::from_ref(&f.post_processor);
    let processors = if kind(&f.post_processor) == "Sequence" { list(&f.post_processor, "processors") } else { alone };
    for p in processors {
        match kind(p) {
            "" if p.is_null() => {}
            "ByteLevel" => {}
            "TemplateProcessing" => template(p, &mut shape)?,
            _ => return None,
        }
    }
    Some(shape)
}

/// `single` of a TemplateProcessing: special tokens around one sequence.
fn template(p: &Value, shape: &mut Shape) -> Option<()> {
    let mut seen = false;
    for part in list(p, "single") {
        if part.get("Sequence").is_some() {
            if seen {
                return None;
            }
            seen = true;
        } else {
            let name = part.get("SpecialToken")?.get("id")?.as_str()?;
            for id in p.get("special_tokens")?.get(name)?.get("ids")?.as_array()? {
                let id = u32::try_from(id.as_u64()?).ok()?;
                if seen { &mut shape.suffix } else { &mut shape.prefix }.push(id);
            }
        }
    }
    seen.then_some(())
}

fn fast(file: File, shape: Shape, options: &Options) -> Res<Tok> {
    let limits = options.limits();
    if file.model.vocab.0.len() > limits.vocab || file.model.merges.len() > limits.vocab * 4 {
        return Err(Error::TooLarge(format!("more than {} tokens, or four times as many merges", limits.vocab)));
    }
    let mut added = file.added_tokens;
    let known: std::collections::HashSet<&str> = added.iter().map(|t| t.content.as_str()).collect();
    let more: Vec<AddedToken> = options.added_tokens.iter().filter(|t| !known.contains(t.content.as_str())).cloned().collect();
    added.extend(more);
    let mut vocab: FastMap<Box<[u8]>, u32> = FastMap::default();
    vocab.reserve(file.model.vocab.0.len());
    let mut bytes_of: Vec<(u32, Vec<u8>, u8)> = Vec::with_capacity(file.model.vocab.0.len() + added.len());
    let added_ids: HashMap<u32, &AddedToken> = added.iter().map(|t| (t.id, t)).collect();
    for (token, id) in &file.model.vocab.0 {
        if added_ids.contains_key(id) {
            continue; // an added token's text is its own, not the alphabet's
        }
        let bytes = alphabet::to_bytes(&token.0).unwrap_or_else(|| token.0.as_bytes().to_vec());
        vocab.insert(bytes.clone().into_boxed_slice(), *id);
        bytes_of.push((*id, bytes, 0));
    }
    for t in &added {
        bytes_of.push((t.id, t.content.clone().into_bytes(), ADDED | special_flag(t, options)));
    }
    let table = Table::build(bytes_of, &limits)?;
    let mut bpe = ByteBpe::new(shape.pattern, vocab)?;
    bpe.nfc = shape.nfc;
    bpe.ignore_merges = file.model.ignore_merges;
    bpe.reserve_merges(file.model.merges.len());
    for (rank, merge) in file.model.merges.iter().enumerate() {
        let (left, right) = match merge {
            Merge::Pair(a, b) => (&*a.0, &*b.0),
            Merge::Joined(text) => match text.0.split_once(' ') {
                Some(pair) => pair,
                None => return corrupt(format!("merge {rank} is not a pair")),
            },
        };
        match (alphabet::to_bytes(left), alphabet::to_bytes(right)) {
            (Some(a), Some(b)) => bpe.add_merge(&a, &b, rank as u32)?,
            _ => return corrupt(format!("merge {rank} is not written in the byte alphabet")),
        }
    }
    for id in shape.prefix.iter().chain(&shape.suffix) {
        if table.bytes(*id).is_none() {
            return corrupt(format!("the post-processor names id {id}, which does not exist"));
        }
    }
    Ok(Tok {
        engine: Engine::ByteBpe(Box::new(bpe)),
        added: AddedTokens::new(added)?,
        prefix: shape.prefix,
        suffix: shape.suffix,
        table,
        rules: Rules::default(),
        limits,
    })
}

fn special_flag(t: &AddedToken, options: &Options) -> u8 {
    if t.special || options.special_texts.contains(&t.content) {
        SPECIAL
    } else {
        0
    }
}
