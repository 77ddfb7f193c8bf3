//! Members of a JSON object that a caller sent.
//!
//! Owns: reading one by its name; absent and null are one. Leaves to others: which refusal the text of a
//! fault becomes.

use serde_json::{Map, Value};

/// A text.
pub(crate) fn text<'b>(
    object: &'b Map<String, Value>,
    name: &str,
) -> Result<Option<&'b str>, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name}: {other} is not a text")),
    }
}

/// A text that says something: an empty one is absent.
pub(crate) fn given<'b>(
    object: &'b Map<String, Value>,
    name: &str,
) -> Result<Option<&'b str>, String> {
    Ok(text(object, name)?.filter(|text| !text.is_empty()))
}

/// True or false.
pub(crate) fn flag(object: &Map<String, Value>, name: &str) -> Result<Option<bool>, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(format!("{name}: {other} is not true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_member_is_read_absent_or_named_in_the_fault() {
        let Value::Object(object) = json!({"a": "x", "b": "", "c": null, "d": 7, "e": true}) else {
            return;
        };
        assert_eq!(text(&object, "a"), Ok(Some("x")));
        assert_eq!((text(&object, "b"), given(&object, "b")), (Ok(Some("")), Ok(None)));
        for absent in ["c", "f"] {
            assert_eq!((text(&object, absent), flag(&object, absent)), (Ok(None), Ok(None)));
        }
        assert_eq!(given(&object, "d"), Err("d: 7 is not a text".to_owned()));
        assert_eq!(flag(&object, "e"), Ok(Some(true)));
        assert_eq!(flag(&object, "a"), Err("a: \"x\" is not true or false".to_owned()));
    }
}
