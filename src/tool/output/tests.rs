use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::workspace::root::Root;

struct Case {
    folder: tempfile::TempDir,
    session: SessionFolder,
    limits: Limits,
}

impl Case {
    fn new(result_bytes: u64, output_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let session = SessionFolder { name: "main".to_owned(), root: Root::open(folder.path()).expect("the folder") };
        Self { folder, session, limits: Limits { result_bytes, output_bytes, command_timeout: Duration::ZERO } }
    }

    /// What is kept of `pieces`, checked to have been shown live as they are.
    fn keep(&self, pieces: &[&[u8]]) -> Kept {
        let live = Mutex::new(Vec::new());
        let show = |bytes: &[u8]| live.lock().expect("no panic").extend_from_slice(bytes);
        let mut output = Output::new(Some(&self.session), "call_1", &self.limits, &show);
        for piece in pieces {
            output.push(piece);
        }
        let kept = output.finish();
        assert!(*live.lock().expect("no panic") == pieces.concat());
        kept
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).expect("an output file")
    }
}

fn lines(count: u32) -> String {
    (1..=count).fold(String::new(), |lines, number| lines + &format!("line {number}\n"))
}

#[test]
fn what_fits_is_shown_whole_and_makes_no_file() {
    let case = Case::new(2048, 1 << 20);
    let kept = case.keep(&[b"one\n", "zwölf\n".as_bytes()]);
    assert_eq!(kept, Kept { text: "one\nzwölf\n".to_owned(), is_replaced: false, output_file: None });
    assert!(!case.folder.path().join("outputs").exists());
}

#[test]
fn a_long_output_is_kept_whole_and_shown_by_its_ends() {
    let case = Case::new(1024, 1 << 20);
    let whole = lines(200);
    let kept = case.keep(&whole.as_bytes().chunks(7).collect::<Vec<_>>());
    assert_eq!(kept.output_file.as_deref(), Some("outputs/call_1.txt"));
    assert_eq!(case.file("outputs/call_1.txt"), whole.as_bytes());
    // Both cuts move to the border of a line.
    let head_end = whole[..256].rfind('\n').unwrap() + 1;
    let tail_start = whole.len() - 256 + whole[whole.len() - 256..].find('\n').unwrap() + 1;
    let (head, tail) = (&whole[..head_end], &whole[tail_start..]);
    let left_out = &whole[head_end..tail_start];
    let expected = format!(
        "{head}[... {} bytes, {} lines left out; `read` on session:outputs/call_1.txt has the whole ...]\n{tail}",
        left_out.len(),
        left_out.lines().count(),
    );
    assert_eq!(kept.text, expected);
    assert!(kept.text.len() <= 1024);
}

#[test]
fn files_and_their_folder_are_private_and_never_written_over() {
    use std::os::unix::fs::PermissionsExt;
    let case = Case::new(1024, 1 << 20);
    let whole = lines(200);
    assert_eq!(case.keep(&[whole.as_bytes()]).output_file.as_deref(), Some("outputs/call_1.txt"));
    assert_eq!(case.keep(&[b"x\n", whole.as_bytes()]).output_file.as_deref(), Some("outputs/call_1-2.txt"));
    assert_eq!(case.file("outputs/call_1.txt"), whole.as_bytes());
    assert_eq!(keep(&case.session, "call_1", b"kept").expect("it is kept"), "outputs/call_1-3.txt");
    assert_eq!(case.file("outputs/call_1-3.txt"), b"kept");
    for (name, expected) in [("outputs", 0o700), ("outputs/call_1.txt", 0o600), ("outputs/call_1-3.txt", 0o600)] {
        let mode = std::fs::metadata(case.folder.path().join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, expected, "{name}");
    }
}

#[test]
fn more_than_a_file_may_hold_is_counted() {
    let case = Case::new(1024, 1000);
    let kept = case.keep(&[&[b'x'; 900], &[b'y'; 900]]);
    assert_eq!(case.file("outputs/call_1.txt"), [[b'x'; 900].as_slice(), &[b'y'; 100]].concat());
    let expected = "[... 1288 bytes left out; `read` on session:outputs/call_1.txt has the first 1000 bytes, the last \
                    800 were not kept ...]";
    assert_eq!(kept.text, format!("{}\n{expected}\n{}", "x".repeat(256), "y".repeat(256)));
}

#[test]
fn an_output_that_cannot_be_kept_says_so_and_goes_on() {
    let case = Case::new(1024, 1 << 20);
    std::fs::write(case.folder.path().join("outputs"), "in the way").expect("a file");
    let kept = case.keep(&[lines(200).as_bytes()]);
    assert_eq!(kept.output_file, None);
    assert!(kept.text.contains("left out; the whole could not be kept: "), "{}", kept.text);
    assert!(kept.text.starts_with("line 1\n") && kept.text.ends_with("line 200\n"));
}

#[test]
fn a_full_disk_takes_the_file_back() {
    let case = Case::new(1024, 1 << 20);
    let live = |_: &[u8]| ();
    let mut output = Output::new(Some(&case.session), "call_1", &case.limits, &live);
    output.push(lines(200).as_bytes());
    let full = File::options().write(true).open("/dev/full").expect("a full device");
    let WholeState::Open { file, .. } = &mut output.whole.state else { panic!("a file is being written") };
    *file = full;
    output.push(b"more\n");
    let kept = output.finish();
    assert_eq!(kept.output_file, None);
    assert!(kept.text.contains("left out; the whole could not be kept: No space left on device"), "{}", kept.text);
    assert_eq!(std::fs::read_dir(case.folder.path().join("outputs")).expect("the folder").count(), 0);
}

#[test]
fn without_a_session_there_is_no_file() {
    let case = Case::new(1024, 1 << 20);
    let live = |_: &[u8]| ();
    let mut output = Output::new(None, "call_1", &case.limits, &live);
    output.push(lines(200).as_bytes());
    let kept = output.finish();
    assert_eq!(kept.output_file, None);
    assert!(kept.text.contains("left out; without a session the whole is not kept ...]"), "{}", kept.text);
}

#[test]
fn bytes_that_are_no_text_are_replaced_for_the_model_alone() {
    let case = Case::new(2048, 1 << 20);
    let kept = case.keep(&[b"a\xff\xc3", b"\0b\xe2\x82"]);
    assert_eq!(
        kept,
        Kept { text: "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}".to_owned(), is_replaced: true, output_file: None }
    );
    // Replaced, it is too long to be shown.
    let kept = case.keep(&[&[0xff; 1000]]);
    assert!(kept.text.len() <= 2048 && kept.is_replaced);
    assert_eq!(case.file("outputs/call_1.txt"), [0xff; 1000]);
    let shown = kept.text.matches('\u{fffd}').count();
    assert!(kept.text.contains(&format!("[... {} bytes left out", 1000 - shown)), "{}", kept.text);
}

#[test]
fn a_cut_tears_no_character() {
    for offset in 0..4 {
        let case = Case::new(1024, 1 << 20);
        let whole = format!("{}{}", "x".repeat(offset), "🦀".repeat(300));
        let kept = case.keep(&[whole.as_bytes()]);
        assert!(!kept.is_replaced, "{}", kept.text);
        let crabs = kept.text.matches('🦀').count();
        assert!(kept.text.contains(&format!("[... {} bytes left out", 1200 - 4 * crabs)), "{}", kept.text);
    }
}

#[test]
fn a_key_is_masked_before_anybody_sees_it() {
    mask::register("TEST_OUTPUT_KEY", "sk-output-0123456789");
    let case = Case::new(1024, 1 << 20);
    let whole = format!("{}sk-output-0123456789{}", "x".repeat(1000), "y".repeat(1000));
    for size in [1, 3, 1010, 5000] {
        let live = Mutex::new(Vec::new());
        let show = |bytes: &[u8]| live.lock().expect("no panic").extend_from_slice(bytes);
        let mut output = Output::new(Some(&case.session), "call_1", &case.limits, &show);
        whole.as_bytes().chunks(size).for_each(|piece| output.push(piece));
        let file = output.finish().output_file.expect("it is long");
        let expected = whole.replace("sk-output-0123456789", "[TEST_OUTPUT_KEY masked]");
        assert_eq!(String::from_utf8_lossy(&case.file(&file)), expected, "pieces of {size}");
        assert_eq!(String::from_utf8_lossy(&live.lock().expect("no panic")), expected, "pieces of {size}");
    }
}

#[test]
fn the_window_holds_no_more_than_it_may() {
    let mut window = Window::new(32 * 1024);
    for size in [1, 100, 64 * 1024, 1024 * 1024] {
        let piece = vec![b'x'; size];
        for _ in 0..50 {
            window.push(&piece);
        }
    }
    assert_eq!(window.total_bytes, 50 * (1 + 100 + 64 * 1024 + 1024 * 1024));
    assert!(window.head.capacity() + window.tail.capacity() <= 4 * 32 * 1024);
}

#[test]
fn a_shortened_text_says_how_to_get_the_rest() {
    let text = lines(100);
    assert_eq!(shorten(&text, text.len(), None), text);
    let short = shorten(&text, 300, Some("outputs/call_1.txt"));
    assert!(short.starts_with("line 1\n") && short.ends_with("line 100\n"), "{short}");
    assert!(short.contains(" left out; `read` on session:outputs/call_1.txt has the whole ...]\n"), "{short}");
    assert!(shorten(&text, 300, None).contains(" left out; the whole was not kept ...]\n"));
    assert_eq!(shorten("ab", 1, None), "[... 2 bytes left out; the whole was not kept ...]");
}

proptest! {
    #[test]
    fn a_shortened_text_has_both_ends_and_counts_the_rest(
        text in "(\\PC|\n){0,400}",
        bytes_max in 120_usize..600,
    ) {
        let short = shorten(&text, bytes_max, Some("outputs/call_1.txt"));
        prop_assert!(short.len() <= bytes_max);
        if text.len() <= bytes_max {
            prop_assert_eq!(&*short, &*text);
        } else {
            let (head, rest) = short.split_once("[... ").expect("the line");
            let (line, tail) = rest.split_once(" ...]").expect("the line");
            let count: usize = line.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
            // A line end may have been added on either side.
            let shown = head.len() + tail.len();
            prop_assert!((text.len()..=text.len() + 2).contains(&(shown + count)));
            prop_assert!(text.starts_with(head.strip_suffix('\n').unwrap_or(head)));
            prop_assert!(text.ends_with(tail.strip_prefix('\n').unwrap_or(tail)));
        }
    }

    #[test]
    fn a_stream_is_shown_the_same_however_it_comes(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(0xe2), Just(0x82)], 0..600),
        size in 1_usize..100,
    ) {
        let mut at_once = Window::new(256);
        at_once.push(&bytes);
        let mut in_pieces = Window::new(256);
        bytes.chunks(size).for_each(|piece| in_pieces.push(piece));
        let (at_once, in_pieces) = (at_once.shown(), in_pieces.shown());
        prop_assert_eq!(&at_once.head, &in_pieces.head);
        prop_assert_eq!(&at_once.tail, &in_pieces.tail);
        prop_assert!(at_once.head.len() + at_once.tail.len() <= 256);
        if at_once.is_whole() {
            prop_assert_eq!(at_once.head, String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}"));
        }
    }
}
