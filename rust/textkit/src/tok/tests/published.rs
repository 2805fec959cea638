//! Published tokenizers, where the shared test data is there.

use std::path::PathBuf;

use super::vocabularies::options;
use super::{agree, anything, Engine};
use crate::tok::{hfjson, spm};

fn file(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if !path.exists() {
        println!("skip: ../shared/data/{name} is not there");
        return None;
    }
    Some(path)
}

fn text_of(path: &PathBuf) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn byte_level_files() {
    for name in ["qwen3", "llama-3"] {
        let Some(path) = file(&format!("tokenizers/{name}/tokenizer.json")) else { continue };
        let json = text_of(&path);
        let tok = hfjson::load(&json, &options()).unwrap();
        let inside = ["<|im_start|>", "<|begin_of_text|>", "<|endoftext|>", "<think>", "<|im_"];
        agree(name, &tok, &json.parse().unwrap(), 800, 1000, &inside, anything);
    }
}

/// llama-2's tokenizer.json writes its piece U+00A0 as a plain space.
fn fits(text: &str) -> bool {
    !text.contains("<0x") && !text.contains('\u{a0}')
}

/// No tokens inside: these files have theirs matched in the normalised text, which SentencePiece knows nothing of.
#[test]
fn sentencepiece_files() {
    for name in ["tokenizers/llama-2", "tiny-lm/stories260K"] {
        let (Some(model), Some(json)) = (file(&format!("{name}/tokenizer.model")), file(&format!("{name}/tokenizer.json")))
        else {
            continue;
        };
        let tok = spm::load(&std::fs::read(model).unwrap(), &options()).unwrap();
        let Engine::Crate(mut oracle, _) = hfjson::load(&text_of(&json), &options()).unwrap().engine else {
            panic!("{name} is read by the crate");
        };
        oracle.with_post_processor(None::<tokenizers::PostProcessorWrapper>);
        agree(name, &tok, &oracle, 900, 1000, &[], fits);
    }
}
