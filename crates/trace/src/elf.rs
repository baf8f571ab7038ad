//! Where the symbols of a program or library lie: just enough of ELF to find a few by name.

use std::fs::File;
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 6] = [0x7F, b'E', b'L', b'F', 2, 1]; // 64 bits, little-endian
const FIXED_ADDRESS: u16 = 2; // ET_EXEC
const DYNAMIC_SYMBOLS: u32 = 11; // SHT_DYNSYM
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// A table larger than this is none of a Python.
const MAX_TABLE: u64 = 64 << 20;

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

/// Eight bytes of `data` as a number.
pub fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

fn read(file: &File, at: u64, length: u64) -> Option<Vec<u8>> {
    let length = (length <= MAX_TABLE).then_some(length)?;
    let mut data = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut data, at).ok()?;
    Some(data)
}

/// The addresses of `names` among the dynamic symbols, relative to where the file is loaded; absolute
/// where the second value is true. None: another kind of file, or not all of them are there.
pub fn symbols<const N: usize>(file: &File, names: [&str; N]) -> Option<([u64; N], bool)> {
    let header = read(file, 0, 64)?;
    if header[..MAGIC.len()] != MAGIC {
        return None;
    }
    let count = usize::from(u16_at(&header, 60)?);
    let sections = read(file, u64_at(&header, 40)?, (count * SECTION_BYTES) as u64)?;
    let section =
        |number: usize| sections.get(number * SECTION_BYTES..(number + 1) * SECTION_BYTES);
    let content = |section: &[u8]| read(file, u64_at(section, 24)?, u64_at(section, 32)?);
    let dynamic = (0..count)
        .filter_map(section)
        .find(|one| u32_at(one, 4) == Some(DYNAMIC_SYMBOLS))?;
    let strings = content(section(u32_at(dynamic, 40)? as usize)?)?;
    let mut found = [0; N];
    for symbol in content(dynamic)?.chunks_exact(SYMBOL_BYTES) {
        let (name, value) = (u32_at(symbol, 0)? as usize, u64_at(symbol, 8)?);
        let is = |wanted: &&str| {
            let rest = strings
                .get(name..)
                .and_then(|rest| rest.strip_prefix(wanted.as_bytes()));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        };
        if value != 0
            && let Some(which) = names.iter().position(is)
        {
            found[which] = value;
        }
    }
    let is_absolute = u16_at(&header, 16)? == FIXED_ADDRESS;
    (!found.contains(&0)).then_some((found, is_absolute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_of_the_c_library_is_found_and_a_missing_one_is_none() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.lines().find(|line| line.contains("/libc.so")).unwrap();
        let path = library.split_whitespace().last().unwrap();
        let file = File::open(path).unwrap();
        let ([place], is_absolute) = symbols(&file, ["getpid"]).unwrap();
        assert!(place > 0 && !is_absolute);
        assert!(symbols(&file, ["getpid", "no_such_symbol"]).is_none());
    }

    #[test]
    fn a_file_of_another_kind_has_no_symbols() {
        let file = File::open("/proc/self/maps").unwrap();
        assert!(symbols(&file, ["getpid"]).is_none());
    }
}
