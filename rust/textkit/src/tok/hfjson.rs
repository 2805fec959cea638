//! tokenizer.json. Byte-level BPE with a known pattern goes to our engine, everything else to the Hugging Face crate.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::added::AddedTokens;
use super::bytebpe::{ByteBpe, FastMap};
use super::covers::Covers;
use super::pretok::Pattern;
use super::{alphabet, corrupt, AddedToken, Engine, Error, Options, Res, Rules, Table, Tok, ADDED, BYTE, SPECIAL};

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

fn kind(v: &Value) -> &str {
    v.get("type").and_then(Value::as_str).unwrap_or("")
}

fn empty(v: &Value) -> bool {
    v.is_null() || v.as_str() == Some("")
}

fn list<'v>(v: &'v Value, key: &str) -> &'v [Value] {
    v.get(key).and_then(Value::as_array).map_or(&[], |a| a.as_slice())
}

pub fn load(json: &str, options: &Options) -> Res<Tok> {
    options.check()?;
    if let Ok(file) = serde_json::from_str::<File>(json) {
        if let Some(shape) = recognise(&file) {
            return fast(file, shape, options);
        }
    }
    generic(json, options)
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
        engine: Engine::ByteBpe(bpe),
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

/// How the decoder turns one token into bytes.
#[derive(Default)]
struct Decoding {
    byte_level: bool,
    byte_fallback: bool,
    replace: Vec<(String, String)>,
    rules: Rules,
}

fn decoding(v: &Value) -> Res<Decoding> {
    let mut d = Decoding::default();
    let alone = std::slice::from_ref(v);
    let parts = if kind(v) == "Sequence" { list(v, "decoders") } else { alone };
    let mut fused = false;
    for part in parts {
        match kind(part) {
            "ByteLevel" => d.byte_level = true,
            "ByteFallback" => d.byte_fallback = true,
            "Fuse" => fused = true,
            "Replace" => {
                let from = part.get("pattern").and_then(|p| p.get("String")).and_then(Value::as_str);
                let to = part.get("content").and_then(Value::as_str);
                match (from, to) {
                    (Some(from), Some(to)) if !from.is_empty() => d.replace.push((from.into(), to.into())),
                    _ => return Err(Error::Unsupported("a decoder with a regular expression is not supported".into())),
                }
            }
            "Strip" => {
                let content = part.get("content").and_then(Value::as_str);
                let count = |key: &str| part.get(key).and_then(Value::as_u64).unwrap_or(0);
                if content != Some(" ") || count("start") > 1 || count("stop") > 0 || !fused {
                    return Err(Error::Unsupported("a Strip decoder other than one leading space is not supported".into()));
                }
                d.rules.strip_first_space = count("start") == 1;
            }
            "Metaspace" => {
                let mark = part.get("replacement").and_then(Value::as_str).unwrap_or("\u{2581}");
                d.replace.push((mark.to_string(), " ".into()));
                let never = part.get("prepend_scheme").and_then(Value::as_str) == Some("never")
                    || part.get("add_prefix_space").and_then(Value::as_bool) == Some(false);
                d.rules.strip_first_space = !never;
            }
            other => {
                let name = if other.is_empty() { "no decoder" } else { other };
                return Err(Error::Unsupported(format!("{name} in tokenizer.json is not supported")));
            }
        }
    }
    d.rules.sentencepiece = !d.byte_level;
    Ok(d)
}

fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}

/// Merges written as "left right" cannot be cut when a token itself has a space (some published files). Such a file is
/// written again with pairs, cut where both halves and the whole are tokens; nothing when all merges are plain.
fn unambiguous_merges(mut file: Value) -> Res<Option<String>> {
    let plain = |m: &Value| m.as_str().is_none_or(|s| s.split(' ').count() == 2);
    let Some(model) = file.get_mut("model").and_then(Value::as_object_mut) else { return Ok(None) };
    let mut merges = match model.remove("merges") {
        Some(Value::Array(list)) if !list.iter().all(plain) => list,
        _ => return Ok(None),
    };
    let Some(vocab) = model.get("vocab").and_then(Value::as_object) else { return Ok(None) };
    for (rank, merge) in merges.iter_mut().enumerate() {
        let Some(line) = merge.as_str().filter(|l| !l.starts_with("#version")) else { continue };
        let known = |cut: &(usize, &str)| {
            let (a, b) = (&line[..cut.0], &line[cut.0 + 1..]);
            vocab.contains_key(a) && vocab.contains_key(b) && vocab.contains_key(&format!("{a}{b}"))
        };
        match line.match_indices(' ').take(1000).find(known) {
            Some((at, _)) => *merge = serde_json::json!([line[..at], line[at + 1..]]),
            None => return corrupt(format!("merge {rank} is not a pair of tokens")),
        }
    }
    merges.retain(Value::is_array);
    model.insert("merges".into(), Value::Array(merges));
    serde_json::to_string(&file).map(Some).map_err(|e| Error::Corrupt(e.to_string()))
}

fn generic(json: &str, options: &Options) -> Res<Tok> {
    let limits = options.limits();
    let parsed: Value = serde_json::from_str(json).map_err(|e| Error::Corrupt(e.to_string()))?;
    let decode = decoding(parsed.get("decoder").unwrap_or(&Value::Null))?;
    let vocab = parsed.get("model").and_then(|m| m.get("vocab"));
    let entries = vocab.map_or(0, |v| v.as_object().map_or_else(|| v.as_array().map_or(0, Vec::len), |o| o.len()));
    if entries > limits.vocab {
        return Err(Error::TooLarge(format!("the vocabulary has more than {} tokens", limits.vocab)));
    }
    // Ids are checked before the library makes tables of them.
    let ids = vocab
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|o| o.values())
        .chain(list(&parsed, "added_tokens").iter().filter_map(|t| t.get("id")));
    for id in ids {
        if id.as_u64().is_none_or(|id| id >= limits.vocab as u64) {
            return Err(Error::TooLarge(format!("token id {id} is above the limit of {} ids", limits.vocab)));
        }
    }
    let covers = Covers::of(&parsed, !decode.replace.is_empty(), options);
    let rewritten = unambiguous_merges(parsed)?;
    let json = rewritten.as_deref().unwrap_or(json);
    let mut tok: tokenizers::Tokenizer = json.parse().map_err(|e: tokenizers::Error| Error::Corrupt(e.to_string()))?;
    tok.with_truncation(None).map_err(|e| Error::Corrupt(e.to_string()))?;
    tok.with_padding(None);
    for t in &options.added_tokens {
        if tok.token_to_id(&t.content).is_none() && t.id as usize == tok.get_vocab_size(true) {
            let token = tokenizers::AddedToken::from(t.content.clone(), t.special)
                .lstrip(t.lstrip)
                .rstrip(t.rstrip)
                .single_word(t.single_word)
                .normalized(t.normalized);
            tok.add_tokens(&[token]);
        }
    }
    let added = tok.get_added_tokens_decoder();
    let mut tokens = Vec::new();
    for (text, id) in tok.get_vocab(true) {
        if let Some(a) = added.get(&id) {
            let special = a.special || options.special_texts.contains(&a.content);
            tokens.push((id, a.content.clone().into_bytes(), ADDED | if special { SPECIAL } else { 0 }));
            continue;
        }
        tokens.push(match (decode.byte_level, byte_token(&text)) {
            (true, _) => (id, alphabet::to_bytes(&text).unwrap_or_else(|| text.into_bytes()), 0),
            (false, Some(b)) if decode.byte_fallback => (id, vec![b], BYTE),
            _ => {
                let text = decode.replace.iter().fold(text, |t, (from, to)| t.replace(from.as_str(), to));
                (id, text.into_bytes(), 0)
            }
        });
    }
    let table = Table::build(tokens, &limits)?;
    Ok(Tok {
        engine: Engine::Crate(Box::new(tok), covers),
        added: AddedTokens::default(),
        prefix: Vec::new(),
        suffix: Vec::new(),
        table,
        rules: decode.rules,
        limits,
    })
}
