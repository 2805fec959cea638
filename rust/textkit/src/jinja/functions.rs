//! Global functions.

use std::cell::RefCell;
use std::rc::Rc;

use super::eval::Eval;
use super::value::*;

pub fn global(name: &str) -> Option<V> {
    const NAMES: [&str; 5] = ["range", "dict", "namespace", "raise_exception", "strftime_now"];
    NAMES.iter().find(|n| **n == name).map(|n| V::Function(n))
}

pub fn call(e: &mut Eval, name: &str, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
    match name {
        "range" => range(&args),
        "dict" => {
            let mut pairs = Vec::new();
            if let Some(V::Map(m)) = args.first() {
                e.reserve(m.entries.len() * 128)?;
                pairs.extend(m.entries.iter().cloned());
            }
            pairs.extend(kwargs.into_iter().map(|(k, v)| (V::str(k), v)));
            V::map(pairs)
        }
        "namespace" => {
            let mut attrs: Vec<(String, V)> = Vec::new();
            if let Some(V::Map(m)) = args.first() {
                for (k, v) in &m.entries {
                    attrs.push((k.as_str().unwrap_or_default().to_string(), v.clone()));
                }
            }
            attrs.extend(kwargs);
            if attrs.iter().any(|a| a.1.holds_namespace()) {
                return bad("a namespace cannot hold a namespace");
            }
            Ok(V::Namespace(Rc::new(Namespace { attrs: RefCell::new(attrs) })))
        }
        "raise_exception" => {
            let message = args.first().cloned().unwrap_or(V::None);
            let message = super::pytext::str_of(e, &message)?;
            bad(message.chars().take(2000).collect::<String>())
        }
        "strftime_now" => {
            let format = args.first().and_then(|v| v.as_str()).ok_or_else(|| Fault::Bad("strftime_now needs a format".into()))?;
            e.step(format.len() as u64)?;
            e.text(strftime(format, e.unix_seconds))
        }
        _ => bad(format!("no function named '{name}'")),
    }
}

fn range(args: &[V]) -> Res<V> {
    let int = |v: &V| {
        let i = v.as_int().ok_or_else(|| Fault::Bad("range() needs integers".into()))?;
        i64::try_from(i).map_err(|_| Fault::Bad("range() is too large".into()))
    };
    match args {
        [stop] => Ok(V::Range(0, int(stop)?, 1)),
        [start, stop] => Ok(V::Range(int(start)?, int(stop)?, 1)),
        [start, stop, step] => match int(step)? {
            0 => bad("range() arg 3 must not be zero"),
            step => Ok(V::Range(int(start)?, int(stop)?, step)),
        },
        _ => bad("range() takes 1 to 3 arguments"),
    }
}

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The directives of strftime in the C locale; `seconds` counts from 1970 in local time.
pub fn strftime(format: &str, seconds: i64) -> String {
    let days = seconds.div_euclid(86_400);
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    // Civil date from days (proleptic Gregorian), counting years from March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let doe = shifted.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy_march = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy_march + 2) / 153;
    let day = doy_march - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
    let yday = before + day + i64::from(leap && month > 2);
    let weekday = (days + 3).rem_euclid(7) as usize; // 0 = Monday
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let month_name = MONTHS[month as usize - 1];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        let plain = directive == Some('-');
        if plain {
            directive = chars.next();
        }
        let two = |n: i64| if plain { n.to_string() } else { format!("{n:02}") };
        out += &match directive {
            Some('Y') => year.to_string(),
            Some('y') => two(year.rem_euclid(100)),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => {
                if plain {
                    day.to_string()
                } else {
                    format!("{day:2}")
                }
            }
            Some('H') => two(hour),
            Some('I') => two(hour12),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('p') => {
                if hour < 12 {
                    "AM".into()
                } else {
                    "PM".into()
                }
            }
            Some('B') => month_name.into(),
            Some('b') | Some('h') => month_name[..3].into(),
            Some('A') => DAYS[weekday].into(),
            Some('a') => DAYS[weekday][..3].into(),
            Some('j') => {
                if plain {
                    yday.to_string()
                } else {
                    format!("{yday:03}")
                }
            }
            Some('u') => (weekday + 1).to_string(),
            Some('w') => ((weekday + 1) % 7).to_string(),
            Some('f') => "000000".into(),
            Some('s') => seconds.to_string(),
            Some('z') | Some('Z') => String::new(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') | Some('X') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('D') | Some('x') => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            Some('c') => format!("{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}", &DAYS[weekday][..3], &month_name[..3]),
            Some('n') => "\n".into(),
            Some('t') => "\t".into(),
            Some('%') => "%".into(),
            Some(other) => format!("%{other}"),
            None => "%".into(),
        };
    }
    out
}
