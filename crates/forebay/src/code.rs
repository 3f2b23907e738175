//! Gives memory back in which code lies that only the start needs: the config's check, the command
//! line, the search for credentials.
//!
//! The kernel maps sixteen pages of the program around each that is run, and keeps them mapped
//! until memory is short; so much of an idle gateway was code that never runs again. What does
//! run again is mapped anew at its first use, from the page cache as a rule.

use std::{ffi::c_void, fs, ops::Range, path::Path};

use rustix::mm::{Advice, madvise};

/// Gives back what can be; a kernel that will not costs memory and nothing else.
pub(crate) fn give_back() {
    let (Ok(maps), Ok(program)) = (
        fs::read_to_string("/proc/self/maps"),
        fs::read_link("/proc/self/exe"),
    ) else {
        return;
    };
    for range in code_of(&maps, &program) {
        advise(range);
    }
}

#[expect(unsafe_code, reason = "memory is named by its address")]
fn advise(range: Range<usize>) {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(range.start);
    // SAFETY: `code_of` gives mappings of the program's file that are private, readable and
    // executable but not writable: their bytes are the file's, relocations being in other mappings
    // that are writable at first. Dropping such pages changes no byte: the next use reads the file
    // again, as the first one did (madvise(2), MADV_DONTNEED, on private file mappings). It is the
    // file that is open, so replacing it by name changes nothing.
    let advised = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
    if let Err(error) = advised {
        tracing::debug!(%error, "code that only the start needs stays in memory");
    }
}

/// The mappings in the text of `/proc/self/maps` (proc(5)) that hold the program's code.
fn code_of(maps: &str, program: &Path) -> Vec<Range<usize>> {
    let code = maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, permissions) = (words.next()?, words.next()?);
        // Offset, device and inode stand before the path.
        let path = words.nth(3)?;
        if permissions != "r-xp" || Path::new(path) != program {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let address = |hex| usize::from_str_radix(hex, 16).ok();
        Some(address(start)?..address(end)?)
    });
    code.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_own_code_is_given_back() {
        let maps = "\
            1000-3000 r--p 00000000 fe:00 77 /bin/forebay\n\
            3000-7000 r-xp 00002000 fe:00 77 /bin/forebay\n\
            7000-8000 rw-p 00006000 fe:00 77 /bin/forebay\n\
            8000-9000 r-xp 00000000 fe:00 78 /lib/libc.so\n\
            9000-a000 r-xp 00000000 00:00 0 [vdso]\n\
            a000-b000 r-xp 00000000 00:00 0\n";
        let code = code_of(maps, Path::new("/bin/forebay"));
        assert_eq!(code, std::slice::from_ref(&(0x3000..0x7000)));
    }

    /// Goal: what is given back can still be run, and the kernel has taken it.
    #[test]
    fn code_runs_on_after_it_was_given_back() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let program = fs::read_link("/proc/self/exe").unwrap();
        let code = code_of(&maps, &program);
        assert!(!code.is_empty());
        let before = mapped_bytes();
        give_back();
        let after = mapped_bytes();
        assert!(after < before, "{after} of {before} bytes");
    }

    /// Bytes of files that are mapped and in memory.
    fn mapped_bytes() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssFile:"))
            .unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    }
}
