//! Texts at random, the same for a seed: many scripts, what normalisation changes, white space, and tokens in between.

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn chars(&mut self, from: &str, most: usize) -> String {
        let from: Vec<char> = from.chars().collect();
        (0..1 + self.below(most)).map(|_| self.pick(&from)).collect()
    }
}

const SYLLABLES: &[&str] =
    &["the", "in", "er", "an", "re", "on", "at", "en", "nd", "ti", "es", "or", "te", "of", "ed", "is", "a"];
const CONTRACTIONS: &[&str] = &["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'rE", "'\u{17f}", "'x", "''"];
const SPACES: &[&str] = &[
    " ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n ", "\u{a0}", "\u{3000}", "\u{2028}", "\u{85}", "\u{200b}",
    "\u{c}",
];
const EMOJI: &[&str] = &["😀", "👩‍👩‍👧", "🇩🇪", "👍🏽", "❤️", "1️⃣", "🏴\u{e0067}\u{e007f}", "♂"];
/// What NFC composes, decomposes or leaves.
const MARKS: &[&str] = &[
    "e\u{301}",
    "é",
    "\u{212b}",
    "A\u{30a}",
    "q\u{323}\u{307}",
    "q\u{307}\u{323}",
    "\u{1100}\u{1161}\u{11a8}",
    "각",
    "\u{301}",
    "\u{fb01}",
    "\u{1fbe}\u{308}\u{301}",
    "\u{958}",
    "\u{915}\u{93c}",
    "ñ\u{303}",
    "\u{2126}",
    "i\u{307}",
    "ß",
    "İ",
];
const ODD: &[&str] = &[
    "\0",
    "\u{1}",
    "\u{7f}",
    "\u{fffd}",
    "\u{feff}",
    "\u{e000}",
    "\u{10ffff}",
    "\u{2581}",
    "\u{2581}\u{2581}",
    "\u{ad}",
    "\u{202e}",
    "\\ud83d",
    "\\ude00",
    "\\u0000",
    "\u{d7ff}",
    "\u{ffff}",
];

/// A text; `inside` stands between its parts now and then.
pub fn text(r: &mut Random, inside: &[&str]) -> String {
    let mut out = String::new();
    for _ in 0..r.below(24) {
        part(r, &mut out);
        if !inside.is_empty() && r.below(8) == 0 {
            out.push_str(r.pick(inside));
        }
    }
    out
}

fn part(r: &mut Random, out: &mut String) {
    match r.below(16) {
        0..=3 => {
            for _ in 0..1 + r.below(4) {
                let syllable = r.pick(SYLLABLES);
                match r.below(6) {
                    0 => out.push_str(&syllable.to_uppercase()),
                    _ => out.push_str(syllable),
                }
            }
        }
        4..=6 => out.push_str(r.pick(SPACES)),
        7 => out.push_str(r.pick(CONTRACTIONS)),
        8 => out.push_str(&r.chars("0123456789", 7)),
        9 => out.push_str(&r.chars("٣४五Ⅷ²½𝟙", 3)),
        10 => out.push_str(&r.chars("的一是不了人中日本語カタナかな한국어", 6)),
        11 => out.push_str(r.pick(EMOJI)),
        12 => out.push_str(r.pick(MARKS)),
        13 => out.push_str(&r.chars(".,;:!?-_()[]{}<>|/\\\"'`~@#$%^&*+=…—«»", 5)),
        14 => match r.below(3) {
            0 => out.push_str(r.pick(ODD)),
            1 => out.push_str(&r.chars("абвгдежзиαβγδεאבגابت", 6)),
            _ => out.extend(char::from_u32(r.below(0x11_0000) as u32)),
        },
        // Words above and below the length where byte-level BPE changes its way.
        _ => out.push_str(&r.pick(&["a", "the", "in", "=", " ", "的"]).repeat(1 + r.below(90))),
    }
}
