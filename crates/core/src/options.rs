//! Queue options: names, defaults, ranges.
//!
//! Owns: the one table of options, its JSON spelling and its checks. Leaves to others: what an
//! option does (`queen-state`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One value of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patch<T> {
    /// Leave it as it is (with `replace`: the default).
    #[default]
    Keep,
    /// Back to the default.
    Default,
    /// This value.
    Set(T),
}

/// How an option's JSON value is read: the value, or what is wrong with it.
trait OptionValue: Sized {
    fn read(value: &Value, min: i64, max: i64) -> Result<Self, String>;
}

impl OptionValue for i64 {
    fn read(value: &Value, min: i64, max: i64) -> Result<i64, String> {
        let whole = value.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15).map(|f| f as i64);
        let number = value.as_i64().or(whole);
        match number {
            Some(n) if (min..=max).contains(&n) => Ok(n),
            Some(n) => Err(format!("{n} is out of range {min}..={max}")),
            None => Err(format!("{value} is not a whole number")),
        }
    }
}

impl OptionValue for bool {
    fn read(value: &Value, _: i64, _: i64) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| format!("{value} is neither true nor false"))
    }
}

impl OptionValue for String {
    fn read(value: &Value, _: i64, _: i64) -> Result<String, String> {
        value.as_str().map(str::to_owned).ok_or_else(|| format!("{value} is not a text"))
    }
}

macro_rules! options {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $word:literal, $default:expr, $min:expr, $max:expr;)*) => {
        /// All options of a queue. Seconds unless the name says otherwise.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct QueueOptions { $($(#[$doc])* pub $field: $type,)* }

        /// A change of options; see [`OptionsPatch::read`].
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct OptionsPatch { $($(#[$doc])* pub $field: Patch<$type>,)* }

        impl Default for QueueOptions {
            fn default() -> Self { QueueOptions { $($field: $default,)* } }
        }

        impl QueueOptions {
            /// The options with a patch applied; with `replace`, on top of the defaults.
            pub fn patched(&self, patch: &OptionsPatch, replace: bool) -> QueueOptions {
                let base = if replace { &QueueOptions::default() } else { self };
                QueueOptions { $($field: match &patch.$field {
                    Patch::Keep => base.$field.clone(),
                    Patch::Default => $default,
                    Patch::Set(value) => value.clone(),
                },)* }
            }

            /// All options under their names in the HTTP API.
            pub fn to_json(&self) -> Map<String, Value> {
                let mut map = Map::new();
                $(map.insert($word.to_owned(), Value::from(self.$field.clone()));)*
                map
            }
        }

        impl OptionsPatch {
            /// Every option's name in the HTTP API.
            pub const NAMES: &'static [&'static str] = &[$($word,)*];

            /// Reads a JSON object of options: absent keeps, null is the default, a value sets.
            ///
            /// The error names the option, the value and what is allowed. Members that are no
            /// option are left to the caller (see [`OptionsPatch::NAMES`]).
            pub fn read(object: &Map<String, Value>) -> Result<OptionsPatch, BadOption> {
                let mut patch = OptionsPatch::default();
                $(match object.get($word) {
                    None => {}
                    Some(Value::Null) => patch.$field = Patch::Default,
                    Some(value) => match <$type as OptionValue>::read(value, $min, $max) {
                        Ok(value) => patch.$field = Patch::Set(value),
                        Err(what) => return Err(BadOption { name: $word, what }),
                    },
                })*
                patch.check()?;
                Ok(patch)
            }
        }
    };
}

/// An option with a value that it cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option {name}: {what}")]
pub struct BadOption {
    /// The option's name in the HTTP API.
    pub name: &'static str,
    /// The value and what is allowed.
    pub what: String,
}

const FAR: i64 = 1 << 40;

options! {
    /// First label, for discovery.
    namespace: String = "namespace", String::new(), 0, 0;
    /// Second label, for discovery.
    task: String = "task", String::new(), 0, 0;
    /// Lease of a pop.
    lease_time: i64 = "leaseTime", 300, 1, FAR;
    /// Failed acks before the dead letters.
    retry_limit: i64 = "retryLimit", 3, 0, FAR;
    /// Stored and shown, no effect. Milliseconds.
    retry_delay: i64 = "retryDelay", 1000, -FAR, FAR;
    /// Stored and shown, no effect.
    priority: i64 = "priority", 0, -FAR, FAR;
    /// Stored and shown, no effect.
    max_size: i64 = "maxSize", 0, -FAR, FAR;
    /// Stored and shown, no effect.
    ttl: i64 = "ttl", 3600, -FAR, FAR;
    /// With the next one: dead letters are off only when both are false.
    dead_letter_queue: bool = "deadLetterQueue", true, 0, 0;
    /// See `dead_letter_queue`.
    dlq_after_max_retries: bool = "dlqAfterMaxRetries", true, 0, 0;
    /// A message can be popped so long after its append.
    delayed_processing: i64 = "delayedProcessing", 0, 0, FAR;
    /// A partition delivers after so long without an append.
    window_buffer: i64 = "windowBuffer", 0, 0, FAR;
    /// Switches the two next rules on.
    retention_enabled: bool = "retentionEnabled", false, 0, 0;
    /// Messages older than this go, consumed or not; 0 = never.
    retention_seconds: i64 = "retentionSeconds", 0, 0, FAR;
    /// Messages that all groups have passed go after this; 0 = never.
    completed_retention_seconds: i64 = "completedRetentionSeconds", 0, 0, FAR;
    /// Messages older than this are delivered to no group; 0 = never.
    max_wait_time_seconds: i64 = "maxWaitTimeSeconds", 0, 0, FAR;
    /// Payloads are encrypted at rest when a key is configured.
    encryption_enabled: bool = "encryptionEnabled", false, 0, 0;
    /// Milliseconds, held within 0..=60000. Shown, no effect.
    min_pop_wait_time: i64 = "minPopWaitTime", 0, -FAR, FAR;
    /// How long a transaction id is remembered; 0 = off.
    dedup_window_seconds: i64 = "dedupWindowSeconds", 3600, 0, FAR;
    /// The sink whose confirmation retention waits for; empty = none.
    retention_sink_hold: String = "retentionSinkHold", String::new(), 0, 0;
    /// Longest such wait.
    retention_sink_hold_max_seconds: i64 = "retentionSinkHoldMaxSeconds", 604_800, 60, 31_536_000;
}

impl OptionsPatch {
    fn check(&mut self) -> Result<(), BadOption> {
        if let Patch::Set(ms) = &mut self.min_pop_wait_time {
            *ms = (*ms).clamp(0, 60_000);
        }
        if let Patch::Set(name) = &self.retention_sink_hold {
            let fits = name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            if !fits {
                let what = format!("{name:?} is not a sink name: at most 64 of A-Z a-z 0-9 . _ -");
                return Err(BadOption { name: "retentionSinkHold", what });
            }
        }
        Ok(())
    }
}

impl QueueOptions {
    /// Options of a queue that a push, pop or timer created: labels from its dotted name, lease 60 s.
    pub fn implicit(queue: &str) -> QueueOptions {
        let mut parts = queue.split('.');
        let namespace = parts.next().unwrap_or_default().to_owned();
        let task = parts.next().unwrap_or_default().to_owned();
        let lease_time = crate::limits::IMPLICIT_LEASE_SECONDS as i64;
        QueueOptions { namespace, task, lease_time, ..QueueOptions::default() }
    }

    /// Whether failed messages go to the dead letters.
    pub fn dead_letters(&self) -> bool {
        self.dead_letter_queue || self.dlq_after_max_retries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<OptionsPatch, BadOption> {
        OptionsPatch::read(value.as_object().unwrap())
    }

    #[test]
    fn all_options_are_echoed_and_patched() {
        let set = read(json!({"leaseTime": 5, "minPopWaitTime": 90000, "namespace": "n"})).unwrap();
        let options = QueueOptions::default().patched(&set, false);
        assert_eq!(options.to_json().len(), 21);
        assert_eq!((options.lease_time, options.min_pop_wait_time), (5, 60_000));
        let back = read(json!({"leaseTime": null})).unwrap();
        let options = options.patched(&back, false);
        assert_eq!((options.lease_time, options.namespace.as_str()), (300, "n"));
        assert_eq!(options.patched(&OptionsPatch::default(), true), QueueOptions::default());
    }

    #[test]
    fn a_bad_option_is_refused_by_name_value_and_range() {
        let text = |v| read(v).unwrap_err().to_string();
        assert_eq!(
            text(json!({"retryLimit": -1})),
            "option retryLimit: -1 is out of range 0..=1099511627776"
        );
        assert!(text(json!({"leaseTime": "x"})).contains("\"x\" is not a whole number"));
        assert!(text(json!({"retentionSinkHold": "a b"})).starts_with("option retentionSinkHold"));
        assert!(text(json!({"retentionSinkHoldMaxSeconds": 5})).contains("60..=31536000"));
    }
}
