//! From the text of a grammar to a parser that requests are cloned from.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::{Logger, TokenParser};
use serde_json::Value;
use toktrie::InferenceCapabilities;

use super::cache::MaskCache;
use super::env::{Env, WHITE_SPACE};
use super::{gbnf, json, lark, tag, Error, Res};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    JsonSchema,
    Regex,
    Lark,
    /// Any JSON object; no text.
    JsonObject,
    /// A JSON array of texts, one of which is the answer.
    Choice,
    /// FastDeploy's (`structures`, `triggers`) or xgrammar's (`format`) JSON object.
    StructuralTag,
}

impl Kind {
    pub fn from_number(number: i32) -> Option<Kind> {
        let kinds = [Kind::JsonSchema, Kind::Regex, Kind::Lark, Kind::JsonObject, Kind::Choice, Kind::StructuralTag];
        usize::try_from(number).ok().and_then(|at| kinds.get(at).copied())
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// No white space between the tokens of JSON.
    pub tight: bool,
    /// Objects that name properties and say nothing of others allow no others.
    pub closed: bool,
    /// What cannot be enforced is left out and becomes a warning.
    pub lenient: bool,
    /// Set here: the grammar is nothing but JSON.
    pub whole: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub text_bytes: usize,
    /// Of what a schema becomes: alternatives and their parts.
    pub nodes: usize,
    /// Steps to build the lexer, about 50 a microsecond.
    pub initial_fuel: u64,
    /// Steps of the lexer for one mask, about 14 a microsecond.
    pub step_fuel: u64,
    /// Symbols of the grammar's rules.
    pub grammar_size: usize,
    /// 1 to 2 KiB each.
    pub lexer_states: usize,
    /// Items of the parser for one mask.
    pub step_items: usize,
    /// Items of the parser for one place of the text.
    pub row_items: usize,
    /// Nesting of the text.
    pub depth: usize,
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            text_bytes: 1 << 20,
            nodes: 100_000,
            initial_fuel: 1_000_000,
            step_fuel: 200_000,
            grammar_size: 200_000,
            lexer_states: 50_000,
            step_items: 50_000,
            row_items: 2_000,
            depth: 128,
            time: Duration::from_millis(1_500),
        }
    }
}

impl Limits {
    fn parser(&self) -> ParserLimits {
        ParserLimits {
            max_items_in_row: self.row_items,
            initial_lexer_fuel: self.initial_fuel,
            step_lexer_fuel: self.step_fuel,
            step_max_items: self.step_items,
            max_lexer_states: self.lexer_states,
            max_grammar_size: self.grammar_size,
            precompute_large_lexemes: true,
            verbose_errors: false,
        }
    }
}

/// A compiled grammar. Requests share masks and the states of its lexers, which grow with use.
pub struct Compiled {
    pub env: Arc<Env>,
    /// The whole answer is JSON.
    pub json: bool,
    pub warnings: Vec<String>,
    pub masks: MaskCache,
    pristine: Mutex<TokenParser>,
    lanes: Mutex<Vec<Lane>>,
    text_bytes: usize,
}

/// A lexer and the requests that use it, one at a time.
#[derive(Default)]
struct Lane {
    base: Option<TokenParser>,
    /// Counts renewals: a request of an older lexer is not counted in `users`.
    age: u64,
    users: usize,
}

/// Which lexer a request uses.
#[derive(Clone, Copy)]
pub struct LaneId {
    number: usize,
    age: u64,
}

/// Lexers per grammar: so many requests compute masks at once without waiting for each other.
const LANES: usize = 4;

struct Clock {
    end: Instant,
}

impl Clock {
    fn check(&self) -> Res<()> {
        if Instant::now() > self.end {
            return Err(Error::TooLarge("the grammar takes too long to compile".into()));
        }
        Ok(())
    }
}

impl Compiled {
    pub fn new(env: Arc<Env>, kind: Kind, text: &str, options: Options, limits: &Limits) -> Res<Compiled> {
        if text.len() > limits.text_bytes {
            return Err(Error::TooLarge(format!("the grammar is longer than {} bytes", limits.text_bytes)));
        }
        let json = matches!(kind, Kind::JsonSchema | Kind::JsonObject);
        let options = Options { whole: json, ..options };
        let clock = Clock { end: Instant::now() + limits.time };
        let mut warnings = Vec::new();
        let grammar = if env.plain && kind == Kind::JsonSchema {
            TopLevelGrammar::from_json_schema(json::read(text, limits.depth)?)
        } else {
            top_level(&env, kind, text, options, limits, &mut warnings)?
        };
        clock.check()?;
        let limits = if env.plain { env.factory.limits().clone() } else { limits.parser() };
        let init = GrammarInit::Serialized(grammar);
        let mut parser = env
            .factory
            .create_parser_from_init_ext(init, Logger::new(0, 0), InferenceCapabilities::default(), limits)
            .map_err(|e| of_llguidance(&e))?;
        clock.check()?;
        parser.start_without_prompt();
        let lanes = Mutex::new((0..LANES).map(|_| Lane::default()).collect());
        let (pristine, masks) = (Mutex::new(parser), MaskCache::new());
        let json = json && !env.plain;
        Ok(Compiled { env, json, warnings, masks, pristine, lanes, text_bytes: text.len() })
    }

    /// A parser at the beginning of an answer, over the lexer that has the fewest users; the first knows most.
    pub fn start(&self) -> (TokenParser, LaneId) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (0..lanes.len()).min_by_key(|&i| lanes[i].users).unwrap_or(0);
        let lane = &mut lanes[number];
        lane.users += 1;
        let pristine = || self.pristine.lock().unwrap_or_else(PoisonError::into_inner).deep_clone();
        (lane.base.get_or_insert_with(pristine).clone(), LaneId { number, age: lane.age })
    }

    pub fn end(&self, id: LaneId) {
        let lane = &mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner)[id.number];
        if lane.age == id.age {
            lane.users -= 1;
        }
    }

    /// A request failed: later requests get a lexer that has seen nothing of it.
    pub fn renew(&self, id: LaneId) {
        let lane = &mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner)[id.number];
        if lane.age == id.age {
            *lane = Lane { base: None, age: lane.age + 1, users: 0 };
        }
    }

    /// An estimate of the memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let parser = self.pristine.lock().unwrap_or_else(PoisonError::into_inner);
        (1 << 16) + self.text_bytes * 16 + parser.parser.lexer_stats().num_bytes * (LANES + 1) + self.masks.bytes()
    }
}

fn top_level(
    env: &Env,
    kind: Kind,
    text: &str,
    options: Options,
    limits: &Limits,
    warnings: &mut Vec<String>,
) -> Res<TopLevelGrammar> {
    let mut prepare = |schema: &Value, at: &str| json::prepare(schema, at, options, limits, warnings);
    match kind {
        Kind::JsonObject => {
            let schema = prepare(&serde_json::json!({"type": "object"}), "")?;
            Ok(TopLevelGrammar::from_json_schema(schema))
        }
        Kind::JsonSchema => {
            let schema = json::read(text, limits.depth)?;
            if !schema.is_object() && !schema.is_boolean() {
                return Err(Error::Invalid("the schema is no object".into()));
            }
            Ok(TopLevelGrammar::from_json_schema(prepare(&schema, "")?))
        }
        Kind::Regex => {
            tag::check_nesting(text, limits.depth)?;
            Ok(TopLevelGrammar::from_regex(text))
        }
        Kind::Lark => {
            let text = gbnf::to_lark(text, limits)?;
            Ok(TopLevelGrammar::from_lark(lark::prepare_schemas(&text, limits, &mut prepare)?))
        }
        Kind::Choice => Ok(TopLevelGrammar::from_lark(tag::choice(&json::read(text, limits.depth)?)?)),
        Kind::StructuralTag => {
            let value = json::read(text, limits.depth)?;
            let lark = tag::structural(&value, &env.special, &mut prepare, limits)?;
            Ok(TopLevelGrammar::from_lark(lark))
        }
    }
}

/// The white space between tokens of JSON as llguidance's options say it. Where the whole answer is JSON, matchers count
/// it: that takes fewer states of the lexer.
pub fn white_space(options: Options) -> Value {
    match (options.tight, options.whole) {
        (true, _) => serde_json::json!({"whitespace_flexible": false}),
        (false, true) => serde_json::json!({}),
        (false, false) => serde_json::json!({"whitespace_pattern": format!(r"[\x20\x0A\x0D\x09]{{1,{WHITE_SPACE}}}")}),
    }
}

/// llguidance tells kinds of errors apart by their words alone.
pub fn of_llguidance(error: &anyhow::Error) -> Error {
    let text = error.to_string().replace("\n<non-verbose/>", "");
    let text = text.split("\n<backtrace>").next().unwrap_or_default();
    let short: String = text.chars().take(600).collect();
    let has = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if has(&["too big", "too large", "too many", "Too many", "limit", "too deeply", "exceeded", "expression too"]) {
        return Error::TooLarge(format!("the grammar is too large: {short}"));
    }
    if has(&["panic", "internal"]) {
        return Error::TooLarge(format!("the grammar cannot be compiled: {short}"));
    }
    if has(&["NoExtension"]) {
        return Error::Unsupported("the model's vocabulary cannot write any text of the grammar".into());
    }
    if has(&["not supported", "only supported", "not disjoint", "can't determine", "Unable to determine", "look-around"]) {
        return Error::Unsupported(format!("the grammar cannot be enforced: {short}"));
    }
    Error::Invalid(format!("the grammar is not valid: {short}"))
}
