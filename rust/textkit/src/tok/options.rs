//! What a loader is told beside the files themselves, as one JSON object (written by the C++ side from the folder's
//! configuration files).

use super::{corrupt, Error, Limits, Res};

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddedToken {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    pub special: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub normalized: bool,
}

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Pre-tokenizer of vocab.json + merges.txt and of tiktoken files: "gpt2", "qwen2" or "llama3".
    pub pattern: String,
    pub nfc: bool,
    pub added_tokens: Vec<AddedToken>,
    /// Texts of tokens that are special although the files do not mark them so.
    pub special_texts: Vec<String>,
    /// Ids put before and after a text when special tokens are asked for.
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    /// SentencePiece: the dummy prefix only before the first segment (transformers' legacy=false).
    pub prefix_once: bool,
    pub max_vocab: usize,
    pub max_token_bytes: usize,
    pub max_text_bytes: usize,
}

impl Options {
    pub fn parse(text: &str) -> Res<Options> {
        serde_json::from_str(text).map_err(|e| Error::Corrupt(format!("tokenizer options: {e}")))
    }

    pub fn limits(&self) -> Limits {
        Limits { vocab: self.max_vocab, token_bytes: self.max_token_bytes, text_bytes: self.max_text_bytes }
    }

    pub fn check(&self) -> Res<()> {
        for t in &self.added_tokens {
            if t.content.is_empty() {
                return corrupt(format!("added token {} is empty", t.id));
            }
            if t.id as usize >= self.max_vocab || t.content.len() > self.max_token_bytes {
                return Err(Error::TooLarge(format!("added token {} is above the limits", t.id)));
            }
        }
        Ok(())
    }
}
