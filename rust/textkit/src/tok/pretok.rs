//! The pre-tokenizer patterns of GPT-2, Llama 3 (cl100k) and Qwen2, written out by hand: no back-tracking, linear time.

use std::sync::OnceLock;

use super::Res;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Cl100k { digits: usize },
}

impl Pattern {
    pub fn by_name(name: &str) -> Option<Pattern> {
        match name {
            "gpt2" => Some(Pattern::Gpt2),
            "qwen2" => Some(Pattern::Cl100k { digits: 1 }),
            "llama3" => Some(Pattern::Cl100k { digits: 3 }),
            _ => None,
        }
    }

    pub fn by_regex(regex: &str) -> Option<Pattern> {
        const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        const HEAD: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}";
        const TAIL: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        if regex == GPT2 {
            return Some(Pattern::Gpt2);
        }
        let rest = regex
            .strip_prefix(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|")
            .or_else(|| regex.strip_prefix(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|"))?;
        match rest.strip_prefix(HEAD)?.strip_suffix(TAIL)? {
            "" => Some(Pattern::Cl100k { digits: 1 }),
            "{1,3}" => Some(Pattern::Cl100k { digits: 3 }),
            _ => None,
        }
    }

    /// Calls `f` with every pre-token, in order, until it fails; together they are the text.
    pub fn split<'a>(self, text: &'a str, mut f: impl FnMut(&'a str) -> Res<()>) -> Res<()> {
        let classes = classes();
        let mut at = 0;
        while at < text.len() {
            let end = match self {
                Pattern::Gpt2 => gpt2(text, at, classes),
                Pattern::Cl100k { digits } => cl100k(text, at, digits, classes),
            };
            f(&text[at..end])?;
            at = end;
        }
        Ok(())
    }
}

const LETTER: u8 = 1;
const NUMBER: u8 = 2;
const SPACE: u8 = 4;

struct Classes {
    ascii: [u8; 128],
    /// Sorted ranges of letters beyond ASCII.
    letters: Vec<(char, char)>,
    /// Class of every character below U+10000.
    bmp: Vec<u8>,
}

fn classes() -> &'static Classes {
    static CLASSES: OnceLock<Classes> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let hir = regex_syntax::parse(r"\p{L}").map(|h| h.into_kind());
        let letters: Vec<(char, char)> = match hir {
            Ok(regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(c))) => {
                c.ranges().iter().map(|r| (r.start(), r.end())).collect()
            }
            _ => Vec::new(),
        };
        let mut bmp = vec![0u8; 0x10000];
        for &(a, b) in &letters {
            for c in a as u32..=(b as u32).min(0xffff) {
                bmp[c as usize] = LETTER;
            }
        }
        for (c, class) in bmp.iter_mut().enumerate() {
            if let Some(c) = char::from_u32(c as u32).filter(|_| *class == 0) {
                *class = if c.is_numeric() {
                    NUMBER
                } else if c.is_whitespace() {
                    SPACE
                } else {
                    0
                };
            }
        }
        let mut ascii = [0; 128];
        ascii.copy_from_slice(&bmp[..128]);
        Classes { ascii, letters, bmp }
    })
}

impl Classes {
    fn of(&self, c: char) -> u8 {
        let code = c as usize;
        if code < 128 {
            return self.ascii[code];
        }
        if code < 0x10000 {
            return self.bmp[code];
        }
        let found = self.letters.binary_search_by(|r| {
            if r.1 < c {
                std::cmp::Ordering::Less
            } else if r.0 > c {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        });
        match found {
            Ok(_) => LETTER,
            Err(_) if c.is_numeric() => NUMBER,
            Err(_) => 0,
        }
    }
}

/// The character at a byte position and its length; a fast way for ASCII.
fn peek(text: &str, at: usize) -> Option<(char, usize)> {
    let b = *text.as_bytes().get(at)?;
    if b < 128 {
        return Some((b as char, 1));
    }
    text[at..].chars().next().map(|c| (c, c.len_utf8()))
}

/// End of the run of characters from `at` on that `test` takes.
fn run(text: &str, mut at: usize, test: impl Fn(char) -> bool) -> usize {
    while let Some((c, n)) = peek(text, at) {
        if !test(c) {
            break;
        }
        at += n;
    }
    at
}

fn contraction(text: &str, at: usize, any_case: bool) -> Option<usize> {
    let rest = &text[at + 1..];
    let mut chars = rest.chars();
    // U+017F (long s) folds to s.
    let fold = |c: char| {
        if any_case {
            if c == '\u{17f}' {
                's'
            } else {
                c.to_ascii_lowercase()
            }
        } else {
            c
        }
    };
    let first = chars.next()?;
    match fold(first) {
        's' | 't' | 'm' | 'd' => return Some(at + 1 + first.len_utf8()),
        _ => {}
    }
    let second = chars.next()?;
    match (fold(first), fold(second)) {
        ('r', 'e') | ('v', 'e') | ('l', 'l') => Some(at + 3),
        _ => None,
    }
}

/// `\s+(?!\S)|\s+` from a white-space character on.
fn spaces(text: &str, at: usize, classes: &Classes) -> usize {
    let end = run(text, at, |c| classes.of(c) == SPACE);
    if end == text.len() {
        return end;
    }
    let last = text[at..end].chars().next_back().map_or(0, char::len_utf8);
    if end - last > at {
        end - last
    } else {
        end
    }
}

fn gpt2(text: &str, at: usize, classes: &Classes) -> usize {
    let Some((c, n)) = peek(text, at) else { return text.len() };
    if c == '\'' {
        if let Some(end) = contraction(text, at, false) {
            return end;
        }
    }
    let start = if c == ' ' { at + n } else { at };
    if let Some((d, _)) = peek(text, start) {
        let class = classes.of(d);
        if class != SPACE {
            return run(text, start, |x| classes.of(x) == class);
        }
    }
    spaces(text, at, classes)
}

fn cl100k(text: &str, at: usize, digits: usize, classes: &Classes) -> usize {
    let Some((c, n)) = peek(text, at) else { return text.len() };
    if c == '\'' {
        if let Some(end) = contraction(text, at, true) {
            return end;
        }
    }
    let class = classes.of(c);
    if class == LETTER {
        return run(text, at, |x| classes.of(x) == LETTER);
    }
    let next = peek(text, at + n).map(|x| classes.of(x.0));
    if class != NUMBER && c != '\r' && c != '\n' && next == Some(LETTER) {
        return run(text, at + n, |x| classes.of(x) == LETTER);
    }
    if class == NUMBER {
        let mut end = at;
        for _ in 0..digits {
            match peek(text, end) {
                Some((d, m)) if classes.of(d) == NUMBER => end += m,
                _ => break,
            }
        }
        return end;
    }
    let other = if class == 0 {
        Some(at)
    } else if c == ' ' && next == Some(0) {
        Some(at + n)
    } else {
        None
    };
    if let Some(start) = other {
        let end = run(text, start, |x| classes.of(x) == 0);
        return run(text, end, |x| x == '\r' || x == '\n');
    }
    let end = run(text, at, |x| classes.of(x) == SPACE);
    if let Some(last) = text[at..end].rfind(['\r', '\n']) {
        return at + last + 1;
    }
    spaces(text, at, classes)
}
