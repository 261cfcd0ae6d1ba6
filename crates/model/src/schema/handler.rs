//! The operator's HTTP handler of an action, as the file declares it. Secrets and tokens are not in
//! the file: it names environment variables, `${NAME}`, whose values the binary puts in when it
//! starts.

use super::Schema;
use crate::outgoing;
use std::fmt;
use std::time::Duration;

/// Longest name of an environment variable.
const NAME_BYTES: usize = 100;

#[derive(Clone, Debug)]
pub struct Handler {
    pub url: String,
    pub timeout: Duration,
    /// Signs the calls; none: they are not signed.
    pub secret: Option<Setting>,
    /// Sent along, in file order.
    pub headers: Vec<(String, Setting)>,
}

/// A text with `${NAME}` in it, and what it is once the variables are known.
#[derive(Clone, PartialEq, Eq)]
pub struct Setting {
    written: String,
    value: Option<String>,
}

impl Setting {
    /// The error names the wrong references in the text.
    pub fn new(written: &str) -> Result<Setting, String> {
        let setting = Setting { written: written.to_owned(), value: None };
        setting.with(|_| Ok(String::new()))?;
        Ok(setting)
    }

    /// Whether it is one reference and nothing else.
    pub fn is_reference(&self) -> bool {
        self.written.starts_with("${") && self.written.find('}') == Some(self.written.len() - 1)
    }

    /// The value; none before the variables are known.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    fn with(
        &self,
        mut variable: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), self.written.as_str());
        while let Some((before, reference)) = rest.split_once("${") {
            out.push_str(before);
            let (name, after) = reference.split_once('}').ok_or("`${` has no `}`")?;
            let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let fits = (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(is_name);
            if !fits || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err("`${…}` must hold the name of an environment variable".to_owned());
            }
            out.push_str(&variable(name)?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// Values stay out of logs.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.written)
    }
}

impl Schema {
    /// Puts the values of environment variables into the handlers; `secret` signs for those without
    /// a secret of their own. Reports everything that is missing or unusable, without values.
    pub fn settle_handlers(
        &mut self,
        secret: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Vec<String>> {
        let mut faults = Vec::new();
        for collection in &mut self.collections {
            for action in &mut collection.actions {
                let place = format!("the handler of `{}.{}`", collection.name, action.name);
                let Some(handler) = &mut action.handler else { continue };
                if let Err(why) = handler.settle(secret, variable) {
                    faults.push(format!("{place}: {why}"));
                }
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

impl Handler {
    fn settle(
        &mut self,
        secret: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        let find = |name: &str| {
            let found = variable(name).filter(|value| !value.is_empty());
            found.ok_or_else(|| format!("the environment variable {name} is not set"))
        };
        let shared = || Setting { written: "the secret of all handlers".to_owned(), value: None };
        let own = match &self.secret {
            Some(own) => Some(own.with(find)?),
            None => secret.map(str::to_owned),
        };
        if let Some(own) = own {
            outgoing::check_secret(&own).map_err(|why| format!("the secret {why}"))?;
            self.secret.get_or_insert_with(shared).value = Some(own);
        }
        let mut bytes = 0;
        for (name, setting) in &mut self.headers {
            let value = setting.with(find)?;
            outgoing::check_header_value(name, &value)?;
            bytes += name.len() + value.len();
            setting.value = Some(value);
        }
        match bytes <= outgoing::MAX_HEADERS_BYTES {
            true => Ok(()),
            false => {
                Err(format!("its headers have more than {} bytes", outgoing::MAX_HEADERS_BYTES))
            }
        }
    }
}
