//! Asks twice before something is done that cannot be undone.

use std::error::Error;
use std::io::{BufRead, IsTerminal as _, Write, stderr, stdin};

/// Asks at the terminal whether somebody wants `what`, and has the `name` typed. Fails where they do not, or where nobody can be asked.
pub(crate) fn ask(name: &str, what: &str) -> Result<(), Box<dyn Error>> {
    if !stdin().is_terminal() {
        return Err("nobody is at a terminal to be asked whether they are sure: say --yes".into());
    }
    ask_by(&mut stdin().lock(), &mut stderr(), name, what)
}

fn ask_by(input: &mut impl BufRead, output: &mut impl Write, name: &str, what: &str) -> Result<(), Box<dyn Error>> {
    let mut answers = |question: &str, answer: &str| -> Result<bool, std::io::Error> {
        write!(output, "{question}")?;
        output.flush()?;
        let mut line = String::new();
        input.read_line(&mut line)?;
        Ok(line.trim() == answer)
    };
    let is_sure = answers(&format!("{what}\nType {name} if that is what you want: "), name)?
        && answers("It cannot be undone. Really? Type really: ", "really")?;
    if is_sure { Ok(()) } else { Err("nothing is done".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(typed: &str) -> (bool, String) {
        let mut said = Vec::new();
        let answer = ask_by(&mut typed.as_bytes(), &mut said, "github", "github forgets all.");
        (answer.is_ok(), String::from_utf8(said).unwrap())
    }

    #[test]
    fn only_the_name_and_then_really_will_do() {
        let (is_sure, said) = asked("github\nreally\n");
        let second = "It cannot be undone. Really? Type really: ";
        let both = format!("github forgets all.\nType github if that is what you want: {second}");
        assert_eq!((is_sure, &*said), (true, &*both));
        for typed in ["github\n", "github\nyes\n", "github\n\n"] {
            assert_eq!(asked(typed), (false, both.clone()), "{typed:?}");
        }
        for typed in ["", "\n", "y\n", "GitHub\nreally\n", "really\ngithub\n"] {
            let (is_sure, said) = asked(typed);
            assert!(!is_sure && !said.contains(second), "{typed:?}: {said}");
        }
    }
}
