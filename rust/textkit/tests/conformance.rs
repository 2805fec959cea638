//! Schemas and patterns of others, when they are there (TERN_SHARED_DATA or ../shared beside the repository).

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use textkit::grammar::{Compiled, Env, Kind, Limits, Matcher, Options};

fn data(name: &str) -> Option<PathBuf> {
    let root = std::env::var("TERN_SHARED_DATA").map(PathBuf::from);
    let root = root.unwrap_or_else(|_| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let path = root.join("data/structured").join(name);
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
    }
    path.exists().then_some(path)
}

fn accepts(compiled: &Arc<Compiled>, text: &str) -> bool {
    let mut m = Matcher::new(compiled.clone());
    let ids: Vec<u32> = text.bytes().map(u32::from).collect();
    for id in ids {
        if m.accepts(&[id]).unwrap_or(0) == 0 || m.consume(&[id]).is_err() {
            return false;
        }
    }
    m.is_accepting()
}

#[test]
fn mask_bench() {
    let Some(path) = data("maskbench_sample.jsonl") else { return };
    let env = Arc::new(Env::bytes().unwrap());
    let (mut run, mut refused, mut wrong) = (0, 0, Vec::new());
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let schema = case["schema"].to_string();
        match Compiled::new(env.clone(), Kind::JsonSchema, &schema, Options::default(), &Limits::default()) {
            Err(e) => {
                refused += 1;
                println!("refused {}: {:?}", case["file"], e);
            }
            Ok(c) => {
                let c = Arc::new(c);
                let mut all = true;
                for t in case["tests"].as_array().unwrap() {
                    let valid = t["valid"].as_bool().unwrap();
                    let got = accepts(&c, &t["data"].to_string());
                    all &= got == valid;
                    if got && !valid {
                        wrong.push(format!("{} {}", case["file"], t["data"]));
                    }
                    if !got && valid {
                        println!("rejects {} {} {}", case["file"], case["schema"], t["data"]);
                    }
                }
                run += usize::from(all);
            }
        }
    }
    println!("mask bench: {run} run, {refused} refused");
    assert_eq!(wrong, Vec::<String>::new());
    assert!(run >= 66, "{run} of 84 schemas run");
}

#[test]
fn test_suite() {
    let Some(path) = data("json-schema-test-suite/draft2020-12") else { return };
    let env = Arc::new(Env::bytes().unwrap());
    let (mut right, mut refused, mut wrong) = (0, 0, Vec::new());
    let mut files: Vec<_> = std::fs::read_dir(path).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "json")) {
        let groups: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        for g in groups.as_array().unwrap() {
            let schema = g["schema"].to_string();
            let made = Compiled::new(env.clone(), Kind::JsonSchema, &schema, Options::default(), &Limits::default());
            let tests = g["tests"].as_array().unwrap();
            let Ok(c) = made else {
                refused += tests.len();
                println!("refused {name} | {} | {:?}", g["description"], made.err());
                continue;
            };
            let c = Arc::new(c);
            for t in tests {
                let (valid, got) = (t["valid"].as_bool().unwrap(), accepts(&c, &t["data"].to_string()));
                match (valid, got) {
                    (true, false) => println!("rejects {name} | {} | {}", g["description"], t["description"]),
                    (false, true) => wrong.push(format!("{name} | {} | {}", g["description"], t["description"])),
                    _ => right += 1,
                }
            }
        }
    }
    println!("test suite: {right} right, {refused} refused");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn patterns() {
    let Some(path) = data("regex_patterns.json") else { return };
    let env = Arc::new(Env::bytes().unwrap());
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut wrong = Vec::new();
    let (mut run, mut refused) = (0, 0);
    for case in all["cases"].as_array().unwrap() {
        let pattern = case["pattern"].as_str().unwrap();
        let schema = serde_json::json!({"type": "string", "pattern": pattern}).to_string();
        let made = Compiled::new(env.clone(), Kind::JsonSchema, &schema, Options::default(), &Limits::default());
        let hard = case["needs_lookaround_or_backreference"].as_bool().unwrap();
        match made {
            Err(e) => {
                refused += 1;
                if !hard {
                    println!("refused {pattern}: {e:?}");
                }
            }
            Ok(c) => {
                run += 1;
                let c = Arc::new(c);
                for (list, want) in [("full_match", true), ("no_match", false)] {
                    for text in case[list].as_array().unwrap() {
                        if accepts(&c, &text.to_string()) != want {
                            let line = format!("{pattern} {text} should be {want}");
                            println!("{line}");
                            if !want {
                                wrong.push(line);
                            }
                        }
                    }
                }
            }
        }
    }
    println!("patterns: {run} run, {refused} refused");
    assert_eq!(wrong, Vec::<String>::new());
}
