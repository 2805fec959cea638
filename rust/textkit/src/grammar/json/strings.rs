//! Alternatives that are strings.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::super::Res;
use super::node::tighter;
use super::parse::Context;

#[derive(Clone, Debug, Default)]
pub struct Str {
    /// Characters.
    pub min: u64,
    pub max: Option<u64>,
    /// All are found in the string.
    pub patterns: Vec<String>,
    pub formats: Vec<String>,
    /// One of these; then `min`, `max`, `patterns` and `not` hold for each.
    pub texts: Option<Vec<String>>,
    /// None of these.
    pub not: BTreeSet<String>,
}

impl Str {
    pub fn text(text: &str) -> Str {
        Str { texts: Some(vec![text.to_string()]), ..Str::default() }
    }

    fn length_fits(&self, text: &str) -> bool {
        let chars = text.chars().count() as u64;
        chars >= self.min && self.max.is_none_or(|m| chars <= m)
    }
}

impl Context<'_> {
    pub fn meet_strings(&mut self, a: &Rc<Str>, b: &Rc<Str>) -> Res<Option<Rc<Str>>> {
        let mut s = Str {
            min: a.min.max(b.min),
            max: tighter(a.max, b.max),
            patterns: a.patterns.clone(),
            formats: a.formats.clone(),
            texts: a.texts.clone().or_else(|| b.texts.clone()),
            not: a.not.union(&b.not).cloned().collect(),
        };
        s.patterns.extend(b.patterns.iter().filter(|p| !a.patterns.contains(p)).cloned());
        s.formats.extend(b.formats.iter().filter(|f| !a.formats.contains(f)).cloned());
        if let (Some(x), Some(y)) = (&a.texts, &b.texts) {
            let other: std::collections::HashSet<&String> = y.iter().collect();
            s.texts = Some(x.iter().filter(|t| other.contains(t)).cloned().collect());
        }
        self.trim_string(s).map(|s| s.map(Rc::new))
    }

    /// The string without texts that break its other rules; nothing when none is left.
    pub fn trim_string(&mut self, mut s: Str) -> Res<Option<Str>> {
        if s.max.is_some_and(|m| s.min > m) {
            return Ok(None);
        }
        let Some(texts) = s.texts.take() else { return Ok(Some(s)) };
        let mut kept = Vec::with_capacity(texts.len());
        for text in texts {
            self.spend(s.patterns.len() as u64)?;
            let mut fits = s.length_fits(&text) && !s.not.contains(&text);
            for pattern in &s.patterns {
                fits = fits && self.patterns.matches(pattern, &text)?;
            }
            if fits {
                kept.push(text);
            }
        }
        if kept.is_empty() {
            return Ok(None);
        }
        Ok(Some(Str { formats: s.formats, texts: Some(kept), ..Str::default() }))
    }
}
