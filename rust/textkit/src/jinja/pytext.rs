//! Values as text: Python's str(), repr(), json.dumps and the two string formatters.

use std::fmt::Write;
use std::ops::Deref;
use std::rc::Rc;

use super::eval::Eval;
use super::value::*;

/// Text that may be shared with a value.
pub enum Shown {
    Shared(Rc<Text>),
    Owned(String),
}

impl Deref for Shown {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Shown::Shared(t) => &t.s,
            Shown::Owned(s) => s,
        }
    }
}

/// str(v)
pub fn str_of(e: &mut Eval, v: &V) -> Res<Shown> {
    Ok(match v {
        V::Str(t) => Shown::Shared(t.clone()),
        V::Undefined(_) => Shown::Owned(String::new()),
        _ => {
            let mut out = String::new();
            repr(e, v, &mut out)?;
            Shown::Owned(out)
        }
    })
}

/// float.__repr__
pub fn float_repr(f: f64) -> String {
    if f.is_nan() {
        return "nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if f == 0.0 {
        return if f.is_sign_negative() { "-0.0".into() } else { "0.0".into() };
    }
    let sci = format!("{f:e}"); // shortest digits that read back equal: d.ddde±x
    let (mantissa, exponent) = sci.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    if (-4..16).contains(&exponent) {
        let plain = format!("{f}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn str_repr(s: &str, out: &mut String) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c as u32 == 0xad => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// repr(v); every element costs a step, and the text is held under the memory limit while it grows.
pub fn repr(e: &mut Eval, v: &V, out: &mut String) -> Res<()> {
    e.step(1)?;
    e.fits(out.len())?;
    match v {
        V::Undefined(_) => out.push_str("Undefined"),
        V::None => out.push_str("None"),
        V::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        V::Int(i) => {
            let _ = write!(out, "{i}");
        }
        V::Float(f) => out.push_str(&float_repr(*f)),
        V::Str(t) => {
            e.bytes_step(t.s.len())?;
            str_repr(&t.s, out)
        }
        V::List(l) => {
            out.push(if l.tuple { '(' } else { '[' });
            for (i, item) in l.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(e, item, out)?;
            }
            if l.tuple && l.items.len() == 1 {
                out.push(',');
            }
            out.push(if l.tuple { ')' } else { ']' });
        }
        V::Map(m) => {
            out.push('{');
            for (i, (k, item)) in m.entries.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(e, k, out)?;
                out.push_str(": ");
                repr(e, item, out)?;
            }
            out.push('}');
        }
        V::Range(a, b, 1) => {
            let _ = write!(out, "range({a}, {b})");
        }
        V::Range(a, b, c) => {
            let _ = write!(out, "range({a}, {b}, {c})");
        }
        V::Namespace(_) => out.push_str("<Namespace>"),
        V::Function(name) => {
            let _ = write!(out, "<function {name}>");
        }
        V::Method(m) => {
            let _ = write!(out, "<method {}>", m.1);
        }
        V::Macro(m) => {
            let _ = write!(out, "<Macro '{}'>", m.name);
        }
        V::Loop(_) => out.push_str("<LoopContext>"),
    }
    Ok(())
}

pub struct JsonStyle {
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
    pub ensure_ascii: bool,
}

fn json_str(s: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if ascii && c as u32 > 0x7e => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn json_newline(style: &JsonStyle, level: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..level {
            out.push_str(indent);
        }
    }
}

/// json.dumps(v, ...)
pub fn json_dumps(e: &mut Eval, v: &V, style: &JsonStyle, level: usize, out: &mut String) -> Res<()> {
    e.step(1)?;
    e.fits(out.len())?;
    match v {
        V::None => out.push_str("null"),
        V::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        V::Float(f) if f.is_nan() => out.push_str("NaN"),
        V::Float(f) if f.is_infinite() => out.push_str(if *f > 0.0 { "Infinity" } else { "-Infinity" }),
        V::Int(_) | V::Float(_) => repr(e, v, out)?,
        V::Str(t) => {
            e.bytes_step(t.s.len())?;
            json_str(&t.s, style.ensure_ascii, out)
        }
        V::List(l) if l.items.is_empty() => out.push_str("[]"),
        V::List(l) => {
            out.push('[');
            for (i, item) in l.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(&style.item_separator);
                }
                json_newline(style, level + 1, out);
                json_dumps(e, item, style, level + 1, out)?;
            }
            json_newline(style, level, out);
            out.push(']');
        }
        V::Map(m) if m.entries.is_empty() => out.push_str("{}"),
        V::Map(m) => {
            let mut order: Vec<&(V, V)> = m.entries.iter().collect();
            if style.sort_keys {
                order.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
            }
            out.push('{');
            for (i, (k, item)) in order.into_iter().enumerate() {
                if i > 0 {
                    out.push_str(&style.item_separator);
                }
                json_newline(style, level + 1, out);
                match k {
                    V::Str(t) => json_str(&t.s, style.ensure_ascii, out),
                    other => {
                        let mut key = String::new();
                        json_dumps(e, other, style, 0, &mut key)?;
                        json_str(&key, style.ensure_ascii, out)
                    }
                }
                out.push_str(&style.key_separator);
                json_dumps(e, item, style, level + 1, out)?;
            }
            json_newline(style, level, out);
            out.push('}');
        }
        other => return bad(format!("Object of type {} is not JSON serializable", other.type_name())),
    }
    Ok(())
}

/// One conversion of `%`-formatting or of a format spec.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    plus: bool,
    width: usize,
    comma: bool,
    precision: Option<usize>,
    kind: Option<char>,
}

const MAX_WIDTH: usize = 10_000;

fn group(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |w| ("-", w));
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out + rest
}

fn apply_spec(e: &mut Eval, spec: &Spec, v: &V) -> Res<String> {
    if spec.width > MAX_WIDTH || spec.precision.unwrap_or(0) > MAX_WIDTH {
        return bad("format width is too large");
    }
    let int = |v: &V| v.as_int().or(v.as_float().map(|f| f.trunc() as i128));
    let need = || Fault::Bad("a number is required by the format".into());
    let mut numeric = true;
    let mut body = match spec.kind {
        Some('d') | Some('i') => int(v).ok_or_else(need)?.to_string(),
        Some('x') => format!("{:x}", int(v).ok_or_else(need)?),
        Some('X') => format!("{:X}", int(v).ok_or_else(need)?),
        Some('o') => format!("{:o}", int(v).ok_or_else(need)?),
        Some('f') | Some('F') => format!("{:.*}", spec.precision.unwrap_or(6), v.as_float().ok_or_else(need)?),
        Some('%') => format!("{:.*}%", spec.precision.unwrap_or(6), v.as_float().ok_or_else(need)? * 100.0),
        Some('r') => {
            let mut s = String::new();
            repr(e, v, &mut s)?;
            s
        }
        None if v.as_float().is_some() && !matches!(v, V::Bool(_)) => match (v, spec.precision) {
            (V::Float(f), Some(p)) => format!("{f:.p$}"),
            _ => str_of(e, v)?.to_string(),
        },
        Some('s') | None => {
            numeric = false;
            let s = str_of(e, v)?;
            match spec.precision {
                Some(p) => s.chars().take(p).collect(),
                None => s.to_string(),
            }
        }
        Some(c) => return bad(format!("unsupported format character '{c}'")),
    };
    if spec.comma {
        body = group(&body);
    }
    if spec.plus && numeric && !body.starts_with('-') {
        body.insert(0, '+');
    }
    let len = body.chars().count();
    if len < spec.width {
        let pad = spec.width - len;
        let fill = spec.fill.unwrap_or(' ');
        let left = match spec.align.unwrap_or(if numeric { '>' } else { '<' }) {
            '>' | '=' => pad,
            '^' => pad / 2,
            _ => 0,
        };
        let fills = |n: usize| std::iter::repeat(fill).take(n).collect::<String>();
        body = if fill == '0' && numeric && (body.starts_with('-') || body.starts_with('+')) {
            format!("{}{}{}", &body[..1], fills(pad), &body[1..])
        } else {
            format!("{}{}{}", fills(left), body, fills(pad - left))
        };
    }
    Ok(body)
}

fn number(chars: &mut std::iter::Peekable<std::str::Chars>) -> Option<usize> {
    let mut n: Option<usize> = None;
    while let Some(d) = chars.peek().and_then(|c| c.to_digit(10)) {
        n = Some(n.unwrap_or(0).saturating_mul(10).saturating_add(d as usize));
        chars.next();
    }
    n
}

/// text % args
pub fn percent_format(e: &mut Eval, text: &str, args: &[V], whole: &V) -> Res<V> {
    let mut out = String::new();
    let mut next = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        e.fits(out.len())?;
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = Spec::default();
        let mut named = None;
        if chars.peek() == Some(&'(') {
            chars.next();
            named = Some(chars.by_ref().take_while(|c| *c != ')').collect::<String>());
        }
        while let Some(flag) = chars.peek().filter(|c| "-+0 ".contains(**c)).copied() {
            chars.next();
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.plus = true,
                '0' => spec.fill = Some('0'),
                _ => {}
            }
        }
        spec.align = spec.align.or(Some('>'));
        spec.width = number(&mut chars).unwrap_or(0);
        if chars.peek() == Some(&'.') {
            chars.next();
            spec.precision = Some(number(&mut chars).unwrap_or(0));
        }
        let Some(kind) = chars.next() else { return bad("incomplete format") };
        if kind == '%' {
            out.push('%');
            continue;
        }
        spec.kind = Some(kind);
        let value = match &named {
            Some(key) => match whole {
                V::Map(m) => m.get(key).cloned().ok_or_else(|| Fault::Bad(format!("KeyError: '{key}'")))?,
                _ => return bad("format requires a mapping"),
            },
            None => args.get(next).cloned().ok_or_else(|| Fault::Bad("not enough arguments for format string".into()))?,
        };
        next += 1;
        out.push_str(&apply_spec(e, &spec, &value)?);
    }
    if next < args.len() && !matches!(whole, V::Map(_)) {
        return bad("not all arguments converted during string formatting");
    }
    e.text(out)
}

fn parse_spec(text: &str) -> Spec {
    let mut spec = Spec::default();
    let chars: Vec<char> = text.chars().collect();
    let mut skip = 0;
    if chars.len() > 1 && "<>^=".contains(chars[1]) {
        spec.fill = Some(chars[0]);
        spec.align = Some(chars[1]);
        skip = 2;
    } else if !chars.is_empty() && "<>^=".contains(chars[0]) {
        spec.align = Some(chars[0]);
        skip = 1;
    }
    let rest: String = chars[skip..].iter().collect();
    let mut it = rest.chars().peekable();
    if it.peek() == Some(&'+') {
        spec.plus = true;
        it.next();
    }
    if it.peek() == Some(&'0') && spec.fill.is_none() {
        spec.fill = Some('0');
        it.next();
    }
    spec.width = number(&mut it).unwrap_or(0);
    if it.peek() == Some(&',') {
        spec.comma = true;
        it.next();
    }
    if it.peek() == Some(&'.') {
        it.next();
        spec.precision = number(&mut it);
    }
    spec.kind = it.next();
    spec
}

/// text.format(*args, **kwargs): fields by position or name, `!r`/`!s`, format specs; no attribute or index access.
pub fn brace_format(e: &mut Eval, text: &str, args: &[V], kwargs: &[(String, V)]) -> Res<V> {
    let mut out = String::new();
    let mut auto = 0;
    let mut manual = false;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        e.fits(out.len())?;
        e.step(1)?;
        let open = rest.as_bytes()[at] == b'{';
        if rest[at + 1..].starts_with(if open { '{' } else { '}' }) {
            out.push(if open { '{' } else { '}' });
            rest = &rest[at + 2..];
            continue;
        }
        let Some(end) = rest[at..].find('}').filter(|_| open) else { return bad("single '{' or '}' in format string") };
        let field = &rest[at + 1..at + end];
        rest = &rest[at + end + 1..];
        let (name, spec) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = name.split_once('!').unwrap_or((name, ""));
        let value = if name.is_empty() {
            auto += 1;
            args.get(auto - 1).cloned()
        } else if let Ok(i) = name.parse::<usize>() {
            args.get(i).cloned()
        } else {
            kwargs.iter().find(|k| k.0 == name).map(|k| k.1.clone())
        };
        manual |= name.parse::<usize>().is_ok();
        if manual && auto > 0 {
            return bad("cannot mix automatic field numbers with given ones");
        }
        let Some(value) = value else { return bad(format!("format field '{name}' has no value")) };
        let value = match conversion {
            "r" => {
                let mut s = String::new();
                repr(e, &value, &mut s)?;
                V::str(s)
            }
            _ => value,
        };
        out.push_str(&apply_spec(e, &parse_spec(spec), &value)?);
    }
    out.push_str(rest);
    e.text(out)
}
