//! Python's two string formatters: `%` and str.format().

use super::eval::Eval;
use super::limits::MAX_FORMAT_WIDTH;
use super::pytext::{repr, str_of};
use super::value::*;

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
    let precision = spec.precision.unwrap_or(0);
    if spec.width > MAX_FORMAT_WIDTH || precision > MAX_FORMAT_WIDTH {
        return Err(Fault::Limit(format!("a format is wider than {MAX_FORMAT_WIDTH} characters")));
    }
    // Digits of a float cost far more than other text: up to 50 ns each.
    e.step((spec.width / 4 + precision + 4) as u64)?;
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
        let fills = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
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
    e.chars_step(text.len())?;
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
    e.scan_step(text.len())?;
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
