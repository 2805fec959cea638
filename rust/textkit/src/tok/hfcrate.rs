//! Any tokenizer.json through the Hugging Face crate; the bytes of its tokens come from the decoder that the file names.

use serde_json::Value;

use super::added::AddedTokens;
use super::covers::Covers;
use super::hfjson::{kind, list};
use super::{alphabet, corrupt, Engine, Error, Options, Res, Rules, Table, Tok, ADDED, BYTE, SPECIAL};

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

pub fn load(json: &str, options: &Options) -> Res<Tok> {
    let limits = options.limits();
    let parsed: Value = serde_json::from_str(json).map_err(|e| Error::Corrupt(e.to_string()))?;
    let decode = decoding(parsed.get("decoder").unwrap_or(&Value::Null))?;
    let entries = vocab_of(&parsed).map_or(0, |v| v.as_object().map_or_else(|| v.as_array().map_or(0, Vec::len), |o| o.len()));
    if entries > limits.vocab {
        return Err(Error::TooLarge(format!("the vocabulary has more than {} tokens", limits.vocab)));
    }
    check_ids(&parsed, limits.vocab)?;
    let covers = Covers::of(&parsed, !decode.replace.is_empty(), options);
    let rewritten = unambiguous_merges(parsed)?;
    let json = rewritten.as_deref().unwrap_or(json);
    let mut tok: tokenizers::Tokenizer = json.parse().map_err(|e: tokenizers::Error| Error::Corrupt(e.to_string()))?;
    tok.with_truncation(None).map_err(|e| Error::Corrupt(e.to_string()))?;
    tok.with_padding(None);
    add_tokens(&mut tok, options);
    Ok(Tok {
        table: Table::build(table_entries(&tok, &decode, options), &limits)?,
        engine: Engine::Crate(Box::new(tok), covers),
        added: AddedTokens::default(),
        prefix: Vec::new(),
        suffix: Vec::new(),
        rules: decode.rules,
        limits,
    })
}

fn vocab_of(file: &Value) -> Option<&Value> {
    file.get("model")?.get("vocab")
}

/// Ids are checked before the library makes tables of them.
fn check_ids(file: &Value, most: usize) -> Res<()> {
    let ids = vocab_of(file)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|o| o.values())
        .chain(list(file, "added_tokens").iter().filter_map(|t| t.get("id")));
    for id in ids {
        if id.as_u64().is_none_or(|id| id >= most as u64) {
            return Err(Error::TooLarge(format!("token id {id} is above the limit of {most} ids")));
        }
    }
    Ok(())
}

/// Tokens that other files of the folder add, where the library gives them the ids that those files say.
fn add_tokens(tok: &mut tokenizers::Tokenizer, options: &Options) {
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
}

fn table_entries(tok: &tokenizers::Tokenizer, decode: &Decoding, options: &Options) -> Vec<(u32, Vec<u8>, u8)> {
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
    tokens
}
