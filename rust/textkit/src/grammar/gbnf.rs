//! GBNF (`root ::= …`, as xgrammar and llama.cpp write grammars) as Lark.

use std::collections::{BTreeMap, BTreeSet};

use super::compile::Limits;
use super::tag::check_nesting;
use super::{Error, Res};

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    /// A string literal, as Lark spells it.
    Text(String),
    /// A class of characters, as a regex.
    Class(String),
    /// One of ( ) | * + ?
    Sign(char),
    /// {m}, {m,}, {m,n}
    Repeat(u32, Option<u32>),
    /// name ::=
    Begin(String),
}

/// The grammar as Lark; what is Lark already stays.
pub fn to_lark(text: &str, limits: &Limits) -> Res<String> {
    check_nesting(text, limits.depth)?;
    if text.contains("x-guidance") {
        return Err(Error::Unsupported("the grammar sets options of the library".into()));
    }
    if !text.contains("::=") {
        return Ok(text.to_string());
    }
    let rules = rules(&tokens(text)?)?;
    let recursive = recursive(&rules);
    if !rules.contains_key("root") {
        return Err(Error::Invalid("the grammar has no rule \"root\"".into()));
    }
    // Rules that do not come back to themselves are terminals: matched as one regular expression.
    let numbers: BTreeMap<&str, usize> = rules.keys().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
    let name = |rule: &str| -> Res<String> {
        let number = numbers.get(rule);
        let number = number.ok_or_else(|| Error::Invalid(format!("the grammar has no rule \"{rule}\"")))?;
        Ok(if recursive.contains(rule) { format!("r{number}") } else { format!("R{number}") })
    };
    let mut out = format!("start: {}\n", name("root")?);
    for (rule, body) in &rules {
        let mut words = Vec::new();
        for token in body {
            words.push(match token {
                Token::Name(n) => name(n)?,
                Token::Text(t) => t.clone(),
                Token::Class(c) => format!("/{c}/"),
                Token::Sign(c) => c.to_string(),
                Token::Repeat(low, Some(high)) => format!("{{{low},{high}}}"),
                Token::Repeat(low, None) => format!("{{{low},}}"),
                Token::Begin(_) => String::new(),
            });
        }
        // Operators stand right behind what they repeat.
        let line = words.join(" ").replace(" *", "*").replace(" +", "+").replace(" ?", "?").replace(" {", "{");
        out.push_str(&format!("{}: {line}\n", name(rule)?));
    }
    Ok(out)
}

fn rules(tokens: &[Token]) -> Res<BTreeMap<String, Vec<Token>>> {
    let mut rules: BTreeMap<String, Vec<Token>> = BTreeMap::new();
    let mut current: Option<String> = None;
    for token in tokens {
        match (token, &current) {
            (Token::Begin(name), _) => {
                if rules.insert(name.clone(), Vec::new()).is_some() {
                    return Err(Error::Invalid(format!("the grammar has two rules \"{name}\"")));
                }
                current = Some(name.clone());
            }
            (_, Some(name)) => rules.entry(name.clone()).or_default().push(token.clone()),
            (_, None) => return Err(Error::Invalid("the grammar does not begin with a rule".into())),
        }
    }
    Ok(rules)
}

/// Rules that come back to themselves, and those that use one.
fn recursive(rules: &BTreeMap<String, Vec<Token>>) -> BTreeSet<String> {
    let uses = |name: &str| -> Vec<&String> {
        let body = rules.get(name).map(Vec::as_slice).unwrap_or_default();
        body.iter().filter_map(|t| if let Token::Name(n) = t { Some(n) } else { None }).collect()
    };
    let mut out = BTreeSet::new();
    for rule in rules.keys() {
        let (mut todo, mut seen) = (uses(rule), BTreeSet::new());
        while let Some(next) = todo.pop() {
            if next == rule {
                out.insert(rule.clone());
                break;
            }
            if seen.insert(next.clone()) {
                todo.extend(uses(next));
            }
        }
    }
    loop {
        let more: Vec<String> =
            rules.keys().filter(|r| !out.contains(*r) && uses(r).iter().any(|n| out.contains(*n))).cloned().collect();
        if more.is_empty() {
            return out;
        }
        out.extend(more);
    }
}

fn tokens(text: &str) -> Res<Vec<Token>> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        match c {
            '#' => {
                while at < chars.len() && chars[at] != '\n' {
                    at += 1;
                }
            }
            _ if c.is_whitespace() => at += 1,
            '"' => out.push(Token::Text(string(&chars, &mut at)?)),
            '[' => out.push(Token::Class(class(&chars, &mut at)?)),
            '{' => out.push(repeat(&chars, &mut at)?),
            '.' => {
                at += 1;
                out.push(Token::Class("(?s:.)".into()));
            }
            '(' | ')' | '|' | '*' | '+' | '?' => {
                at += 1;
                out.push(Token::Sign(c));
            }
            _ if c.is_alphanumeric() || c == '_' => {
                let from = at;
                while at < chars.len() && (chars[at].is_alphanumeric() || "_-.".contains(chars[at])) {
                    at += 1;
                }
                let name: String = chars[from..at].iter().collect();
                let mut next = at;
                while next < chars.len() && chars[next].is_whitespace() {
                    next += 1;
                }
                if chars[next..].starts_with(&[':', ':', '=']) {
                    at = next + 3;
                    out.push(Token::Begin(name));
                } else {
                    out.push(Token::Name(name));
                }
            }
            _ => return Err(Error::Invalid(format!("the grammar has {c:?} where no rule has it"))),
        }
    }
    Ok(out)
}

fn cut(what: &str) -> Error {
    Error::Invalid(format!("the grammar ends inside {what}"))
}

fn string(chars: &[char], at: &mut usize) -> Res<String> {
    let mut text = String::new();
    *at += 1;
    loop {
        match chars.get(*at).ok_or_else(|| cut("a text"))? {
            '"' => break,
            '\\' => text.push(escaped(chars, at)?),
            c => {
                text.push(*c);
                *at += 1;
            }
        }
    }
    *at += 1;
    Ok(super::tag::literal(&text))
}

/// One escaped character; `at` goes behind it.
fn escaped(chars: &[char], at: &mut usize) -> Res<char> {
    let c = *chars.get(*at + 1).ok_or_else(|| cut("an escape"))?;
    *at += 2;
    let digits = match c {
        'n' => return Ok('\n'),
        'r' => return Ok('\r'),
        't' => return Ok('\t'),
        'b' => return Ok('\u{8}'),
        'f' => return Ok('\u{c}'),
        '0' => return Ok('\0'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return Ok(c),
    };
    let text: String = chars.get(*at..*at + digits).ok_or_else(|| cut("an escape"))?.iter().collect();
    *at += digits;
    let code = u32::from_str_radix(&text, 16).ok().and_then(char::from_u32);
    code.ok_or_else(|| Error::Invalid(format!("the grammar has the escape {text:?}, which is no character")))
}

fn class(chars: &[char], at: &mut usize) -> Res<String> {
    let mut out = String::from("[");
    *at += 1;
    if chars.get(*at) == Some(&'^') {
        out.push('^');
        *at += 1;
    }
    loop {
        let c = *chars.get(*at).ok_or_else(|| cut("a class"))?;
        match c {
            ']' if out.len() > 1 => break,
            // Between two characters it means a range, else itself.
            '-' if !out.ends_with(['[', '^']) && chars.get(*at + 1) != Some(&']') => {
                out.push('-');
                *at += 1;
            }
            '\\' => out.push_str(&hex(escaped(chars, at)?)),
            _ => {
                out.push_str(&hex(c));
                *at += 1;
            }
        }
    }
    *at += 1;
    Ok(out + "]")
}

fn hex(c: char) -> String {
    format!("\\u{{{:X}}}", c as u32)
}

fn repeat(chars: &[char], at: &mut usize) -> Res<Token> {
    let end = chars[*at..].iter().position(|c| *c == '}').ok_or_else(|| cut("a repetition"))? + *at;
    let inner: String = chars[*at + 1..end].iter().filter(|c| !c.is_whitespace()).collect();
    *at = end + 1;
    let number = |t: &str| t.parse::<u32>().map_err(|_| Error::Invalid(format!("the grammar repeats {{{inner}}} times")));
    Ok(match inner.split_once(',') {
        None => {
            let n = number(&inner)?;
            Token::Repeat(n, Some(n))
        }
        Some((low, "")) => Token::Repeat(number(low)?, None),
        Some((low, high)) => Token::Repeat(if low.is_empty() { 0 } else { number(low)? }, Some(number(high)?)),
    })
}
