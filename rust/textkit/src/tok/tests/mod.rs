//! Our engines beside the `tokenizers` crate: the same ids for texts at random.

mod byte_level;
mod published;
mod sentencepiece;

mod vocabularies;

use super::{Engine, Error, Tok};
use crate::random_texts::{self as texts, Random};

/// Ids of the crate for a text.
fn ids_of(oracle: &tokenizers::Tokenizer, text: &str, special: bool) -> Vec<u32> {
    oracle.encode(text, special).unwrap_or_else(|e| panic!("{text:?}: {e}")).get_ids().to_vec()
}

/// The same ids for `count` texts, and the promise of encode_within: TooMany exactly when there are more.
fn agree(
    name: &str,
    tok: &Tok,
    oracle: &tokenizers::Tokenizer,
    seed: u64,
    count: usize,
    inside: &[&str],
    fits: fn(&str) -> bool,
) {
    let mut r = Random::new(seed);
    let (mut compared, mut ids_seen) = (0, 0);
    while compared < count {
        let text = texts::text(&mut r, inside);
        if !fits(&text) {
            continue;
        }
        compared += 1;
        let special = r.below(2) == 0;
        let ids = tok.encode(&text, special).unwrap_or_else(|e| panic!("{name}: {text:?}: {e:?}"));
        assert_eq!(ids, ids_of(oracle, &text, special), "{name}: {text:?}");
        ids_seen += ids.len();
        assert_eq!(tok.encode_within(&text, special, ids.len(), None).ok().as_ref(), Some(&ids), "{name}: {text:?}");
        if !ids.is_empty() {
            let most = r.below(ids.len());
            assert!(matches!(tok.encode_within(&text, special, most, None), Err(Error::TooMany)), "{name}: {text:?}");
        }
    }
    assert!(ids_seen > count * 5, "{name}: texts of {ids_seen} ids say little");
}

/// Texts and ids of single tokens are the crate's, too.
fn same_tokens(name: &str, tok: &Tok, oracle: &tokenizers::Tokenizer) {
    for id in 0..oracle.get_vocab_size(true) as u32 + 3 {
        let token = oracle.id_to_token(id);
        assert_eq!(tok.id_to_token(id), token, "{name}: {id}");
        if let Some(token) = token {
            assert_eq!(tok.token_to_id(&token), oracle.token_to_id(&token), "{name}: {token:?}");
        }
    }
}

fn anything(_: &str) -> bool {
    true
}
