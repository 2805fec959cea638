//! Grammars for constrained output, through llguidance.

use std::sync::OnceLock;

use llguidance::api::TopLevelGrammar;
use llguidance::ParserFactory;

/// Over single bytes: what a grammar accepts does not depend on a vocabulary.
fn factory() -> Result<&'static ParserFactory, String> {
    static FACTORY: OnceLock<Result<ParserFactory, String>> = OnceLock::new();
    let made = FACTORY.get_or_init(|| {
        let env = toktrie::ApproximateTokEnv::single_byte_env();
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| e.to_string())?;
        factory.quiet();
        Ok(factory)
    });
    made.as_ref().map_err(Clone::clone)
}

/// Compiles a JSON schema (0), a regular expression (1) or a Lark grammar (2).
pub fn check(kind: i32, text: &str) -> Result<(), String> {
    let grammar = match kind {
        0 => {
            let schema = serde_json::from_str(text).map_err(|e| format!("the schema is not valid JSON: {e}"))?;
            TopLevelGrammar::from_json_schema(schema)
        }
        1 => TopLevelGrammar::from_regex(text),
        2 => TopLevelGrammar::from_lark(text.to_string()),
        _ => return Err("unknown kind of grammar".into()),
    };
    let mut parser = factory()?.create_parser(grammar).map_err(|e| e.to_string())?;
    parser.start_without_prompt();
    parser.compute_mask().map(|_| ()).map_err(|e| e.to_string())
}
