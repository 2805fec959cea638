//! SentencePiece encoding (BPE and unigram), with the results of the original library.

use std::collections::HashMap;

use super::added::AddedTokens;
use super::bounds::Bounds;
use super::bytebpe::FastMap;
use super::spm_merge::{Merging, Work};
use super::spm_model::{Kind, Model, SPACE_MARK};
use super::{AddedToken, Engine, Options, Res, Rules, Table, Tok, ADDED, BYTE, SPECIAL};

pub struct Spm {
    pub model: Model,
    /// The dummy prefix stands only before the first segment, not after every added token.
    prefix_once: bool,
    /// Unigram: (node, byte) -> node; node 0 is the root.
    trie: FastMap<u64, u32>,
    /// Unigram: piece at a node.
    leaves: Vec<u32>,
    min_score: f32,
    max_score: f32,
}

const NONE: u32 = u32::MAX;

pub fn load(data: &[u8], options: &Options) -> Res<Tok> {
    options.check()?;
    let limits = options.limits();
    let model = Model::parse(data, &limits)?;
    let mut added: Vec<AddedToken> = options.added_tokens.clone();
    let mut seen: HashMap<String, u32> = added.iter().map(|t| (t.content.clone(), t.id)).collect();
    let plain = |id: u32, content: &str| AddedToken {
        id,
        content: content.to_string(),
        special: true,
        lstrip: false,
        rstrip: false,
        single_word: false,
        normalized: false,
    };
    // Control pieces never come out of plain text, but templates write them; the same holds for the named special texts.
    for (id, p) in model.pieces.iter().enumerate() {
        if matches!(p.kind, Kind::Control | Kind::Unknown) && !seen.contains_key(&p.text) {
            seen.insert(p.text.clone(), id as u32);
            added.push(plain(id as u32, &p.text));
        }
    }
    for text in &options.special_texts {
        if let (false, Some(id)) = (seen.contains_key(text), model.id_of(text)) {
            seen.insert(text.clone(), id);
            added.push(plain(id, text));
        }
    }
    let added_ids: std::collections::HashSet<u32> = added.iter().map(|t| t.id).collect();
    let mut tokens: Vec<(u32, Vec<u8>, u8)> = Vec::with_capacity(model.pieces.len() + added.len());
    for (id, p) in model.pieces.iter().enumerate() {
        if added_ids.contains(&(id as u32)) {
            continue;
        }
        let byte = || p.text.get(3..5).and_then(|h| u8::from_str_radix(h, 16).ok());
        tokens.push(match p.kind {
            Kind::Byte => (id as u32, vec![byte().unwrap_or(0)], BYTE),
            _ => (id as u32, p.text.replace('\u{2581}', " ").into_bytes(), 0),
        });
    }
    for t in &added {
        let special = t.special || options.special_texts.contains(&t.content);
        tokens.push((t.id, t.content.clone().into_bytes(), ADDED | if special { SPECIAL } else { 0 }));
    }
    let rules = Rules { sentencepiece: true, strip_first_space: model.add_dummy_prefix || model.remove_extra_whitespaces };
    Ok(Tok {
        table: Table::build(tokens, &limits)?,
        engine: Engine::Spm(Box::new(Spm::new(model, options.prefix_once))),
        added: AddedTokens::new(added)?,
        prefix: options.prefix.clone(),
        suffix: options.suffix.clone(),
        rules,
        limits,
    })
}

impl Spm {
    pub fn new(model: Model, prefix_once: bool) -> Spm {
        let mut spm = Spm { model, prefix_once, trie: FastMap::default(), leaves: vec![NONE], min_score: 0.0, max_score: 0.0 };
        let scores = spm.model.pieces.iter().filter(|p| p.kind == Kind::Normal).map(|p| p.score);
        let (low, high) = scores.fold((f32::MAX, f32::MIN), |(low, high), s| (low.min(s), high.max(s)));
        (spm.min_score, spm.max_score) = if low > high { (0.0, 0.0) } else { (low, high) };
        if spm.model.unigram {
            for (text, &id) in &spm.model.by_text {
                let mut node = 0u32;
                for &b in text.iter() {
                    let next = spm.leaves.len() as u32;
                    let entry = spm.trie.entry((node as u64) << 8 | b as u64).or_insert(next);
                    if *entry == next {
                        spm.leaves.push(NONE);
                    }
                    node = *entry;
                }
                spm.leaves[node as usize] = id;
            }
        }
        spm
    }

    /// Appends the ids of one segment (a run of text between added tokens).
    pub fn encode(&self, segment: &str, first: bool, bounds: &Bounds, ids: &mut Vec<u32>) -> Res<()> {
        // White space may be dropped, and a table may map anything to nothing; else every byte is in a token. A mark of
        // space counts as one byte there and may be written out in the text.
        let every_byte = self.model.byte_ids.is_some();
        if every_byte && self.model.keeps_bytes() {
            bounds.check_run(segment.len() / SPACE_MARK.len_utf8(), ids.len())?;
        }
        let text = self.model.normalize(segment, first || !self.prefix_once);
        if text.is_empty() {
            return Ok(());
        }
        if text.len() > i32::MAX as usize {
            return Err(super::Error::TooLarge("the text is too long".into()));
        }
        if every_byte {
            bounds.check_run(text.len() / SPACE_MARK.len_utf8(), ids.len())?;
        }
        let mut out = Output { spm: self, ids, after_unknown: false };
        if self.model.unigram {
            self.unigram(&text, &mut out);
            bounds.check(out.ids.len())
        } else {
            self.bpe_words(&text, bounds, &mut out)
        }
    }

    /// Word by word where no merge can cross a word's border: the same result from small heaps.
    fn bpe_words(&self, text: &str, bounds: &Bounds, out: &mut Output) -> Res<()> {
        let mut work = Work::default();
        if !self.model.words_apart {
            self.bpe(text, &mut work, out);
            return bounds.check(out.ids.len());
        }
        let mut start = 0;
        let mut last_was_mark = true;
        for (at, c) in text.char_indices() {
            let is_mark = c == SPACE_MARK;
            if is_mark && !last_was_mark {
                self.bpe(&text[start..at], &mut work, out);
                bounds.check(out.ids.len())?;
                start = at;
            }
            last_was_mark = is_mark;
        }
        self.bpe(&text[start..], &mut work, out);
        bounds.check(out.ids.len())
    }

    fn bpe(&self, text: &str, work: &mut Work, out: &mut Output) {
        Merging::of(&self.model, text, work).run(|piece, id| out.piece(piece, id));
    }

    /// The best path, position by position; sums are 32-bit as in the original.
    fn unigram(&self, text: &str, out: &mut Output) {
        let unk_score = self.min_score - 10.0;
        // For every end position: (id, best score, start).
        let mut best: Vec<(u32, f32, u32)> = vec![(NONE, 0.0, NONE); text.len() + 1];
        for (start, c) in text.char_indices() {
            let so_far = best[start].1;
            let char_len = c.len_utf8();
            let mut single = false;
            let mut node = 0u32;
            for (i, &b) in text.as_bytes()[start..].iter().enumerate() {
                let Some(&next) = self.trie.get(&((node as u64) << 8 | b as u64)) else { break };
                node = next;
                let id = self.leaves[node as usize];
                if id == NONE {
                    continue;
                }
                let p = &self.model.pieces[id as usize];
                let score = match p.kind {
                    Kind::Unused => continue,
                    Kind::UserDefined => (i + 1) as f32 * self.max_score - 0.1,
                    _ => p.score,
                };
                let candidate = score + so_far;
                let target = &mut best[start + i + 1];
                if target.2 == NONE || candidate > target.1 {
                    *target = (id, candidate, start as u32);
                }
                single |= i + 1 == char_len;
            }
            if !single {
                let candidate = unk_score + so_far;
                let target = &mut best[start + char_len];
                if target.2 == NONE || candidate > target.1 {
                    *target = (self.model.unk_id, candidate, start as u32);
                }
            }
        }
        let mut path = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let (id, _, start) = best[end];
            path.push((start as usize, end, id));
            end = start as usize;
        }
        for &(start, end, id) in path.iter().rev() {
            out.piece(&text[start..end], id);
        }
    }
}

/// Unknown pieces become bytes, or one unknown id for a run of them.
struct Output<'a> {
    spm: &'a Spm,
    ids: &'a mut Vec<u32>,
    after_unknown: bool,
}

impl Output<'_> {
    fn piece(&mut self, text: &str, id: u32) {
        let m = &self.spm.model;
        if id != m.unk_id {
            self.after_unknown = false;
            return self.ids.push(id);
        }
        match &m.byte_ids {
            Some(bytes) => self.ids.extend(text.bytes().map(|b| bytes[b as usize])),
            None if !self.after_unknown => {
                self.after_unknown = true;
                self.ids.push(id);
            }
            None => {}
        }
    }
}
