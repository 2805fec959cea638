//! Time per mask beside plain llguidance: cargo test --release --test masks -- --ignored --nocapture

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use textkit::grammar::{Compiled, Env, Kind, Limits, Matcher, Options};
use textkit::tok::{hfjson, Options as TokOptions, Tok};

extern "C" {
    fn clock_gettime(clock: i32, out: *mut [i64; 2]) -> i32;
}

/// Microseconds of this thread on a core: other programs of the machine do not count.
fn now() -> f64 {
    let mut out = [0i64; 2];
    // SAFETY: a timespec of 64-bit Linux; 3 is CLOCK_THREAD_CPUTIME_ID.
    unsafe { clock_gettime(3, &mut out) };
    out[0] as f64 * 1e6 + out[1] as f64 / 1e3
}

#[derive(Default)]
struct Times {
    masks: Vec<f64>,
    compiles: Vec<f64>,
}

impl Times {
    fn line(&mut self, name: &str) {
        let at = |v: &mut Vec<f64>, q: f64| {
            v.sort_by(f64::total_cmp);
            v[((v.len() - 1) as f64 * q) as usize]
        };
        let mean = self.masks.iter().sum::<f64>() / self.masks.len() as f64;
        println!(
            "{name}: {} masks, mean {mean:.1} us, p50 {:.1}, p90 {:.1}, p99 {:.1}, most {:.1}; compile p50 {:.0} us, p99 {:.0}",
            self.masks.len(),
            at(&mut self.masks, 0.5),
            at(&mut self.masks, 0.9),
            at(&mut self.masks, 0.99),
            at(&mut self.masks, 1.0),
            at(&mut self.compiles, 0.5),
            at(&mut self.compiles, 0.99),
        );
    }
}

fn measure(env: &Arc<Env>, tok: &Tok, schema: &str, texts: &[String], times: &mut Times) -> bool {
    let start = now();
    let made = Compiled::new(env.clone(), Kind::JsonSchema, schema, Options::default(), &Limits::default());
    times.compiles.push(now() - start);
    let Ok(compiled) = made else { return false };
    let compiled = Arc::new(compiled);
    let mut words = vec![0u32; env.ids.div_ceil(32)];
    for text in texts {
        let mut m = Matcher::new(compiled.clone());
        for id in tok.encode(text, false).unwrap() {
            let start = now();
            let done = m.mask(&mut words);
            times.masks.push(now() - start);
            if done.is_err() || words[id as usize / 32] >> (id % 32) & 1 == 0 || m.consume(&[id]).is_err() {
                break;
            }
        }
    }
    true
}

#[test]
#[ignore]
fn masks() {
    let root = std::env::var("TERN_SHARED_DATA").map(PathBuf::from);
    let root = root.unwrap_or_else(|_| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared")).join("data");
    let lines = std::fs::read_to_string(root.join("structured/maskbench_sample.jsonl")).unwrap();
    for (folder, end) in [("qwen3", "<|im_end|>"), ("llama-3", "<|end_of_text|>")] {
        let text = std::fs::read_to_string(root.join("tokenizers").join(folder).join("tokenizer.json")).unwrap();
        let options = TokOptions::parse(r#"{"max_vocab":1000000,"max_token_bytes":65536,"max_text_bytes":1000000}"#);
        let tok = Arc::new(hfjson::load(&text, &options.unwrap()).unwrap());
        let end = tok.token_to_id(end).unwrap();
        let start = Instant::now();
        let ours = Arc::new(Env::new(tok.clone(), &[end], false).unwrap());
        println!("{folder}: vocabulary in {:.2} s", start.elapsed().as_secs_f64());
        let plain = Arc::new(Env::new(tok.clone(), &[end], true).unwrap());
        let (mut a, mut b) = (Times::default(), Times::default());
        for _ in 0..2 {
            (a, b) = (Times::default(), Times::default());
            for line in lines.lines() {
                let case: Value = serde_json::from_str(line).unwrap();
                let schema = case["schema"].to_string();
                let tests = case["tests"].as_array().unwrap();
                let texts: Vec<String> = tests.iter().map(|t| serde_json::to_string_pretty(&t["data"]).unwrap()).collect();
                let probe = |env| Compiled::new(env, Kind::JsonSchema, &schema, Options::default(), &Limits::default());
                if probe(plain.clone()).is_ok() && probe(ours.clone()).is_ok() {
                    measure(&plain, &tok, &schema, &texts, &mut a);
                    measure(&ours, &tok, &schema, &texts, &mut b);
                }
            }
        }
        a.line("  plain");
        b.line("  ours ");
    }
}
