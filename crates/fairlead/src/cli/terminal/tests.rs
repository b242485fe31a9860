use super::*;

#[test]
fn colours_are_off_where_no_terminal_is() {
    // Tests run with their output captured or piped.
    if !std::io::stdout().is_terminal() {
        assert_eq!(Paint::stdout().paint(Colour::Red, "x"), "x");
    }
    assert_eq!(Paint::always(true).paint(Colour::Red, "x"), "\x1b[31mx\x1b[0m");
    assert_eq!(Paint::always(false).paint(Colour::Red, "x"), "x");
}
