//! The README keeps to its measure.

const README: &str = include_str!("../../README.md");
const MOST_LINES: usize = 150;
const MOST_WORDS: usize = 25;

/// Its paragraphs, list items and cells of tables, but no code.
fn passages() -> Vec<String> {
    let mut passages = vec![String::new()];
    for text in README.split("```").step_by(2) {
        for line in text.lines() {
            let begins = line.is_empty() || line.starts_with(['*', '#', '|']);
            if begins {
                passages.push(String::new());
            }
            for cell in line.split('|') {
                if line.starts_with('|') {
                    passages.push(String::new());
                }
                if let Some(passage) = passages.last_mut() {
                    passage.push_str(cell);
                    passage.push(' ');
                }
            }
        }
    }
    passages
}

#[test]
fn the_readme_has_a_hundred_and_fifty_lines_at_most() {
    assert!(README.lines().count() <= MOST_LINES, "{} lines", README.lines().count());
}

#[test]
fn no_sentence_of_the_readme_has_more_than_twenty_five_words() {
    let passages = passages();
    let sentences = passages.iter().flat_map(|passage| passage.split(['.', '!', '?', ';']).map(str::trim));
    let words =
        |sentence: &str| sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    let long: Vec<_> = sentences.filter(|sentence| words(sentence) > MOST_WORDS).collect();
    assert!(passages.len() > 50 && long.is_empty(), "{long:#?}");
}
