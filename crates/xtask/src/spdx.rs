//! Licence expressions: reads SPDX and says whether a set of licences satisfies one.
//!
//! Owns: the grammar (`OR`, `AND`, `WITH`, parentheses, and the old `/` for `OR`). Leaves to others:
//! which licences are welcome (`licences`).

/// Whether the expression can be satisfied with licences for which `allowed` is true.
///
/// `X WITH Y` is asked as the one text `"X WITH Y"`, and, if that is refused, as `"X"`: an
/// exception only ever grants more. A text that is no expression is an error.
pub fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut reader = Reader { tokens: spaced.split_whitespace().collect(), at: 0, allowed };
    let verdict = reader.any()?;
    match reader.next() {
        None => Ok(verdict),
        Some(rest) => Err(format!("unexpected {rest:?} in licence {expression:?}")),
    }
}

struct Reader<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    fn take(&mut self, word: &str) -> bool {
        let there = self.tokens.get(self.at) == Some(&word);
        self.at += usize::from(there);
        there
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut verdict = self.all()?;
        while self.take("OR") {
            verdict |= self.all()?;
        }
        Ok(verdict)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut verdict = self.one()?;
        while self.take("AND") {
            verdict &= self.one()?;
        }
        Ok(verdict)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let verdict = self.any()?;
            return match self.take(")") {
                true => Ok(verdict),
                false => Err("a parenthesis is not closed".to_owned()),
            };
        }
        let name = match self.next() {
            None | Some("OR" | "AND" | "WITH" | ")") => return Err("a licence is missing".into()),
            Some(name) => name,
        };
        if !self.take("WITH") {
            return Ok((self.allowed)(name));
        }
        let exception = self.next().ok_or("an exception is missing")?;
        Ok((self.allowed)(&format!("{name} WITH {exception}")) || (self.allowed)(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(expression: &str) -> Result<bool, String> {
        satisfied(expression, &|name| ["MIT", "ISC", "Apache-2.0"].contains(&name))
    }

    #[test]
    fn a_choice_needs_one_and_a_sum_needs_all() {
        assert_eq!(ask("MIT"), Ok(true));
        assert_eq!(ask("GPL-3.0"), Ok(false));
        assert_eq!(ask("GPL-3.0 OR MIT"), Ok(true));
        assert_eq!(ask("GPL-3.0/MIT"), Ok(true));
        assert_eq!(ask("GPL-3.0 AND MIT"), Ok(false));
        assert_eq!(ask("ISC AND (GPL-3.0 OR MIT) AND Apache-2.0"), Ok(true));
        assert_eq!(ask("MIT OR ISC AND GPL-3.0"), Ok(true));
        assert_eq!(ask("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(ask("GPL-3.0 WITH Classpath-exception-2.0"), Ok(false));
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in ["", "(MIT", "MIT ISC", "MIT AND", "OR MIT", "MIT)"] {
            assert!(ask(text).is_err(), "{text:?}");
        }
    }
}
