//! GPT-2's byte alphabet: every byte has a printable character.

use std::sync::OnceLock;

struct Maps {
    chars: [char; 256],
    bytes: [u16; 512],
}

fn maps() -> &'static Maps {
    static MAPS: OnceLock<Maps> = OnceLock::new();
    MAPS.get_or_init(|| {
        let mut maps = Maps { chars: ['\0'; 256], bytes: [u16::MAX; 512] };
        let mut next = 256u32;
        for b in 0..256u32 {
            let printable = (33..=126).contains(&b) || (161..=172).contains(&b) || (174..=255).contains(&b);
            let code = if printable { b } else { next };
            if !printable {
                next += 1;
            }
            maps.chars[b as usize] = char::from_u32(code).unwrap_or('\0');
            maps.bytes[code as usize] = b as u16;
        }
        maps
    })
}

/// The bytes a token of the alphabet stands for, or nothing when it has a character outside of it.
pub fn to_bytes(token: &str) -> Option<Vec<u8>> {
    let maps = maps();
    let mut out = Vec::with_capacity(token.len());
    for c in token.chars() {
        match maps.bytes.get(c as usize) {
            Some(&b) if b != u16::MAX => out.push(b as u8),
            _ => return None,
        }
    }
    Some(out)
}

pub fn to_text(bytes: &[u8]) -> String {
    let maps = maps();
    bytes.iter().map(|&b| maps.chars[b as usize]).collect()
}
