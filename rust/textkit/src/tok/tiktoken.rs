//! vocab.json + merges.txt, and rank files in tiktoken's form.

use base64::Engine as _;

use super::added::AddedTokens;
use super::bytebpe::{ByteBpe, FastMap};
use super::pretok::Pattern;
use super::{alphabet, corrupt, Engine, Error, Options, Res, Rules, Table, Tok, ADDED, SPECIAL};

type Vocab = FastMap<Box<[u8]>, u32>;

fn pattern(options: &Options) -> Res<Pattern> {
    Pattern::by_name(&options.pattern).ok_or_else(|| Error::Unsupported(format!("no pattern named '{}'", options.pattern)))
}

fn too_many<T>(limit: usize) -> Res<T> {
    Err(Error::TooLarge(format!("more than {limit} tokens")))
}

fn finish(mut bpe: ByteBpe, options: &Options) -> Res<Tok> {
    bpe.nfc = options.nfc;
    let limits = options.limits();
    let added_ids: std::collections::HashSet<u32> = options.added_tokens.iter().map(|t| t.id).collect();
    let mut tokens: Vec<(u32, Vec<u8>, u8)> = Vec::with_capacity(bpe.vocab().len() + added_ids.len());
    for (bytes, &id) in bpe.vocab() {
        if !added_ids.contains(&id) {
            tokens.push((id, bytes.to_vec(), 0));
        }
    }
    for t in &options.added_tokens {
        let special = t.special || options.special_texts.contains(&t.content);
        tokens.push((t.id, t.content.clone().into_bytes(), ADDED | if special { SPECIAL } else { 0 }));
    }
    Ok(Tok {
        engine: Engine::ByteBpe(Box::new(bpe)),
        added: AddedTokens::new(options.added_tokens.clone())?,
        prefix: options.prefix.clone(),
        suffix: options.suffix.clone(),
        table: Table::build(tokens, &limits)?,
        rules: Rules::default(),
        limits,
    })
}

/// vocab.json (token in the byte alphabet -> id) and merges.txt (a pair a line, best first; a `#version` line may lead).
pub fn from_vocab_merges(vocab_json: &str, merges: &str, options: &Options) -> Res<Tok> {
    options.check()?;
    let file: std::collections::HashMap<String, u32> =
        serde_json::from_str(vocab_json).map_err(|e| Error::Corrupt(format!("vocab.json: {e}")))?;
    if file.len() > options.max_vocab {
        return too_many(options.max_vocab);
    }
    let mut vocab = Vocab::default();
    vocab.reserve(file.len());
    for (token, id) in file {
        // Special tokens stand in some vocabularies in plain text, outside of the alphabet.
        let bytes = alphabet::to_bytes(&token).unwrap_or_else(|| token.into_bytes());
        vocab.insert(bytes.into_boxed_slice(), id);
    }
    let mut bpe = ByteBpe::new(pattern(options)?, vocab)?;
    let mut rank = 0u32;
    for (number, line) in merges.lines().enumerate() {
        if line.is_empty() || (number == 0 && line.starts_with("#version")) {
            continue;
        }
        let pair = line.split_once(' ').and_then(|(a, b)| Some((alphabet::to_bytes(a)?, alphabet::to_bytes(b)?)));
        let Some((left, right)) = pair else { return corrupt(format!("merges.txt line {}: not a pair of tokens", number + 1)) };
        bpe.add_merge(&left, &right, rank)?;
        rank += 1;
    }
    finish(bpe, options)
}

/// Lines of base64 token and rank; the rank is the id.
pub fn from_ranks(text: &str, options: &Options) -> Res<Tok> {
    options.check()?;
    let mut vocab = Vocab::default();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() {
            continue;
        }
        let line_error = |what: &str| Error::Corrupt(format!("line {}: {what}", number + 1));
        let (token, rank) = line.split_once(' ').ok_or_else(|| line_error("a token and a rank are expected"))?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(token).map_err(|_| line_error("the token is not base64"))?;
        let rank: u32 = rank.trim().parse().map_err(|_| line_error("the rank is not a number"))?;
        if bytes.is_empty() || bytes.len() > options.max_token_bytes {
            return Err(line_error("the token is empty or too long"));
        }
        if rank as usize >= options.max_vocab || vocab.len() >= options.max_vocab {
            return too_many(options.max_vocab);
        }
        if vocab.insert(bytes.into_boxed_slice(), rank).is_some() {
            return Err(line_error("the token is there twice"));
        }
    }
    // Cutting every token everywhere costs the sum of the squared lengths.
    let work: usize = vocab.keys().map(|k| k.len().saturating_mul(k.len())).fold(0, usize::saturating_add);
    if work > 1 << 31 {
        return Err(Error::TooLarge("the tokens are too long".into()));
    }
    let mut bpe = ByteBpe::new(pattern(options)?, vocab)?;
    bpe.ignore_merges = true;
    bpe.merges_from_ranks();
    finish(bpe, options)
}
