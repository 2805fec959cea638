//! Operations beside their definitions.

use super::super::ops::slice_positions;
use super::super::strftime::strftime;
use super::super::textmethods::split;
use super::{render, WIDE};
use crate::random_texts::{text, Random};

fn value(expression: &str) -> String {
    render(&format!("{{{{ {expression} }}}}"), "{}", WIDE).unwrap_or_else(|e| panic!("{expression}: {e:?}"))
}

/// Day after day, with the calendar counted on instead of computed.
#[test]
fn dates_are_the_calendars() {
    let (mut year, mut month, mut day, mut weekday, mut of_year) = (1970i64, 1, 1, 3, 1);
    for n in 0..366 * 450i64 {
        let second = n * 86_400 + n * 7919 % 86_400;
        let (h, m, s) = (n * 7919 % 86_400 / 3600, n * 7919 % 3600 / 60, n * 7919 % 60);
        let name = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][weekday];
        let expected = format!("{year}-{month:02}-{day:02} {name} {of_year:03} {h:02}:{m:02}:{s:02} {day}");
        assert_eq!(strftime("%Y-%m-%d %a %j %H:%M:%S %-d", second), expected);
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let length = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1];
        (day, of_year, weekday) = (day + 1, of_year + 1, (weekday + 1) % 7);
        if day > length {
            (day, month) = (1, month + 1);
        }
        if month > 12 {
            (month, year, of_year) = (1, year + 1, 1);
        }
    }
    assert_eq!(strftime("%F %T", -1), "1969-12-31 23:59:59");
    assert_eq!(strftime("%I %p %e|%-I %y %%%q%", 0), "12 AM  1|12 70 %%q%");
}

#[test]
fn slices_take_what_python_takes() {
    for len in 0..7i128 {
        let bounds = (-9..9).map(Some).chain([None]).collect::<Vec<Option<i128>>>();
        for (&start, &stop) in bounds.iter().flat_map(|a| bounds.iter().map(move |b| (a, b))) {
            for step in [-3, -2, -1, 1, 2, 3] {
                // As Python describes it: i, i + k, i + 2k, ... and never j, with bounds that lie outside moved to the ends.
                let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
                let place = |x: i128| (if x < 0 { x + len } else { x }).clamp(low, high);
                let from = start.map_or(if step > 0 { low } else { high }, place);
                let to = stop.map_or(if step > 0 { high } else { low }, place);
                let mut expected = Vec::new();
                let mut at = from;
                while (step > 0 && at < to) || (step < 0 && at > to) {
                    expected.push(at as usize);
                    at += step;
                }
                assert_eq!(slice_positions(len, start, stop, step), expected, "{len}[{start:?}:{stop:?}:{step}]");
            }
        }
    }
}

#[test]
fn division_fits_its_remainder() {
    let mut r = Random::new(2);
    for _ in 0..500 {
        let (a, b) = (r.below(2000) as i64 - 1000, r.below(40) as i64 - 20);
        if b == 0 {
            continue;
        }
        let (quotient, rest) = (value(&format!("{a} // {b}")), value(&format!("{a} % {b}")));
        let (quotient, rest): (i64, i64) = (quotient.parse().unwrap(), rest.parse().unwrap());
        assert_eq!(quotient * b + rest, a);
        assert!(rest == 0 || (rest < 0) == (b < 0), "{a} % {b} is {rest}");
        assert!(rest.abs() < b.abs());
    }
}

#[test]
fn split_parts_are_the_text_again() {
    let mut r = Random::new(3);
    for _ in 0..3000 {
        let s = text(&mut r, &[]);
        let separator = r.pick(&["a", " ", "th", "\n", "é", "  "]);
        let max = r.below(5) as i128 - 1;
        for from_right in [false, true] {
            let parts = split(&s, Some(separator), max, from_right).unwrap();
            assert_eq!(parts.join(separator), s);
            let cuts = parts.len() - 1;
            assert!(max < 0 || cuts <= max as usize);
            // What may still be cut lies at the other end.
            let whole = if from_right { &parts[1..] } else { &parts[..cuts] };
            assert!(whole.iter().all(|p| !p.contains(separator)), "{s:?} {separator:?} {max}");
            assert!(cuts == max.max(0) as usize || parts.iter().all(|p| !p.contains(separator)));
            let words = split(&s, None, -1, from_right).unwrap();
            assert!(words.iter().all(|w| !w.is_empty()));
            assert_eq!(split(&words.join(" "), None, -1, !from_right).unwrap(), words);
        }
    }
}

#[test]
fn sorting_is_stable_and_complete() {
    let mut r = Random::new(4);
    for _ in 0..300 {
        let pairs: Vec<(usize, usize)> = (0..r.below(12)).map(|n| (r.below(4), n)).collect();
        let list = pairs.iter().map(|(k, n)| format!("{{'k': {k}, 'n': {n}}}")).collect::<Vec<_>>().join(", ");
        let mut sorted = pairs.clone();
        sorted.sort_by_key(|p| p.0);
        let names = |of: &[(usize, usize)]| of.iter().map(|p| p.1.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(value(&format!("[{list}] | sort(attribute='k') | map(attribute='n') | join(' ')")), names(&sorted));
        sorted.sort_by_key(|p| std::cmp::Reverse(p.0));
        assert_eq!(
            value(&format!("[{list}] | sort(attribute='k', reverse=true) | map(attribute='n') | join(' ')")),
            names(&sorted)
        );
    }
}
