use clap::CommandFactory;

#[test]
fn the_command_line_is_well_formed() {
    super::Cli::command().debug_assert();
}

#[test]
fn prose_is_one_line_a_paragraph_and_examples_stay() {
    let command = clap::Command::new("x").subcommand(
        clap::Command::new("y")
            .long_about("About\n\nOne\ntwo.\n\nExamples:\n  a\n  b\n\nEnd\nof it"),
    );
    let command = super::in_paragraphs(command);
    let about = command.find_subcommand("y").unwrap().get_long_about().unwrap().to_string();
    assert_eq!(about, "About\n\nOne two.\n\nExamples:\n  a\n  b\n\nEnd of it");
}
