//! The vocabulary of a tokenizer as llguidance wants it: the bytes of every id, special tokens told apart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use llguidance::api::ParserLimits;
use llguidance::earley::{BiasComputer, ParserRecognizer, SlicedBiasComputer};
use llguidance::ParserFactory;
use toktrie::{InferenceCapabilities, SimpleVob, TokEnv, TokEnvWithTrie, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::place::{may_follow_in_string, Spaces};
use super::{Error, Res};
use crate::tok::bounds::Bounds;
use crate::tok::{Engine, Tok, SPECIAL};

/// White space that a grammar allows between two tokens of JSON, at most.
pub const WHITE_SPACE: usize = 40;

/// What the masks of a vocabulary are computed with. Immutable, shared by all grammars.
pub struct Env {
    pub factory: ParserFactory,
    /// Ids of the vocabulary: bits of a mask.
    pub ids: usize,
    /// Masks in the middle of JSON strings, over the tokens that may follow there.
    in_string: Option<Arc<SlicedBiasComputer>>,
    pub spaces: Spaces,
    /// Special tokens: what they are called and their ids.
    pub special: Vec<(String, u32)>,
    /// llguidance as it is: schemas are not rewritten, masks not cached. To compare with.
    pub plain: bool,
}

struct Vocabulary {
    tok: Arc<Tok>,
    trie: TokTrie,
    /// Text encodes to the ids that the model was trained on, so that forced bytes may become forced ids.
    canonical: bool,
}

impl Vocabulary {
    fn encode(&self, text: &str) -> Option<Vec<TokenId>> {
        let bounds = Bounds { ids: usize::MAX, longest: self.tok.table.longest, cancelled: None };
        let mut ids = Vec::new();
        match &self.tok.engine {
            Engine::ByteBpe(b) => b.encode(text, &bounds, &mut ids).ok()?,
            Engine::Spm(s) => s.encode(text, false, &bounds, &mut ids).ok()?,
            Engine::Crate(t, _) => ids.extend_from_slice(t.encode_fast(text, false).ok()?.get_ids()),
        }
        // A normalizer or a leading space of the tokenizer's own would change the text.
        let joined = ids.iter().flat_map(|&id| self.trie.token(id)).copied();
        joined.eq(text.bytes()).then_some(ids)
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, s: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(s, |text| {
            self.encode(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}

/// The bytes of every id; special tokens begin with the marker, ids that are not there have none.
fn words(tok: &Tok) -> Vec<Vec<u8>> {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    (0..tok.table.flags.len() as u32)
        .map(|id| {
            let Some(bytes) = tok.table.bytes(id) else { return Vec::new() };
            if tok.table.flags[id as usize] & SPECIAL != 0 {
                let mut word = vec![marker];
                // Without a name no text could be told from the marker itself.
                word.extend_from_slice(if bytes.is_empty() { b"<>" } else { bytes });
                return word;
            }
            // No UTF-8 text has this byte; in front it would be taken for the marker.
            if bytes.first() == Some(&marker) && bytes.len() > 1 {
                return Vec::new();
            }
            bytes.to_vec()
        })
        .collect()
}

impl Env {
    /// `ends`: ids that end an answer.
    pub fn new(tok: Arc<Tok>, ends: &[u32], plain: bool) -> Res<Env> {
        let mut words = words(&tok);
        let ids = words.len();
        if ends.is_empty() || ends.iter().any(|&id| id as usize >= ids) {
            return Err(Error::Invalid("guided decoding needs end tokens that are in the vocabulary".into()));
        }
        // The engine takes them for the end wherever they stand, so they spell nothing.
        for &end in ends {
            let word = &mut words[end as usize];
            if word.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                *word = format!("<end {end}>").into_bytes();
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
        }
        let trie = TokTrie::from(&TokRxInfo::new(ids as u32, ends[0]), &words).with_eos_tokens(ends);
        let mut vocabulary = Vocabulary { tok, trie, canonical: true };
        vocabulary.canonical = vocabulary.encode("{\"a b\": [1, \"\u{e9}\"]}\n").is_some();
        Env::over(Arc::new(vocabulary), ids, plain)
    }

    /// Over single bytes: what a grammar accepts does not depend on a vocabulary. Id 256 ends.
    pub fn bytes() -> Res<Env> {
        let words: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).chain([b"\xff<end>".to_vec()]).collect();
        let trie = TokTrie::from(&TokRxInfo::new(257, 256), &words);
        Env::over(Arc::new(toktrie::ApproximateTokEnv::new(trie)), 257, false)
    }

    fn over(env: TokEnv, ids: usize, plain: bool) -> Res<Env> {
        let slices = if plain { SlicedBiasComputer::general_slices() } else { slices() };
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|e| Error::Internal(format!("cannot build the vocabulary of guided decoding: {e}")))?;
        factory.quiet();
        if plain {
            *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        }
        let trie = env.tok_trie();
        let in_string = if plain { None } else { Some(Arc::new(in_string(&env, &slices)?)) };
        let spaces = Spaces::new(trie);
        let named = (0..ids as u32).filter(|&id| trie.is_special_token(id) && trie.token(id).len() > 1);
        let special = named.filter_map(|id| Some((String::from_utf8(trie.token(id)[1..].to_vec()).ok()?, id))).collect();
        Ok(Env { factory, ids, in_string, spaces, special, plain })
    }
}

fn in_string(env: &TokEnv, slices: &[String]) -> Res<SlicedBiasComputer> {
    let trie = env.tok_trie();
    let mut kept = trie.alloc_token_set();
    for id in 0..trie.vocab_size() as TokenId {
        if !trie.is_special_token(id) && may_follow_in_string(trie.token(id)) {
            kept.allow_token(id);
        }
    }
    let env: TokEnv = Arc::new(TokEnvWithTrie::new(env.clone(), trie.filter(&kept)));
    SlicedBiasComputer::new(&env, slices)
        .map_err(|e| Error::Internal(format!("cannot build the vocabulary of guided decoding: {e}")))
}

/// The masks of one answer in JSON.
pub struct JsonBias {
    anywhere: Arc<SlicedBiasComputer>,
    in_string: Arc<SlicedBiasComputer>,
    now_in_string: AtomicBool,
}

impl JsonBias {
    pub fn new(env: &Env) -> Option<Arc<JsonBias>> {
        let (anywhere, in_string) = (env.factory.slicer(), env.in_string.clone()?);
        Some(Arc::new(JsonBias { anywhere, in_string, now_in_string: AtomicBool::new(false) }))
    }

    /// Whether the text stands in a string and not behind a backslash.
    pub fn set_in_string(&self, yes: bool) {
        self.now_in_string.store(yes, Ordering::Relaxed);
    }
}

impl BiasComputer for JsonBias {
    fn compute_bias(&self, rec: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        // `start`: bytes that are forced before the token begins to be free.
        let inside = start.is_empty() && self.now_in_string.load(Ordering::Relaxed);
        let computer = if inside { &self.in_string } else { &self.anywhere };
        computer.compute_bias(rec, start)
    }

    fn trie(&self) -> &TokTrie {
        self.anywhere.trie()
    }
}

/// Sets of tokens that are allowed together in the middle of a string or of white space.
fn slices() -> Vec<String> {
    vec![
        r"[\x20\x0A\x0D\x09]+".to_string(),
        r#"[^"\\\x00-\x1F\x7F]{1,10}"#.to_string(),
        r#"[^"\\\x00-\x1F\x7F]{1,30}"#.to_string(),
        r#"[^"\\\x00-\x1F\x7F]+"#.to_string(),
    ]
}
