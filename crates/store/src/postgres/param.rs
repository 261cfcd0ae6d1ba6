//! Values as statements bind them, each with the type it is sent as. So a statement needs no
//! round trip that asks for types, and runs without a name behind a pooler.
//!
//! PostgreSQL's text has no NUL. It is bound as two characters, in a way that keeps the order of
//! texts; `decoded` reverses it.

use bytes::BytesMut;
use model::record::Scalar;
use std::borrow::Cow;
use std::error::Error;
use tokio_postgres::types::{IsNull, ToSql, Type};

/// One value.
#[derive(Clone, Debug)]
pub enum Param<'a> {
    Integer(Option<i64>),
    Number(Option<f64>),
    Text(Option<Cow<'a, str>>),
    Bytes(Option<Cow<'a, [u8]>>),
    Integers(Vec<Option<i64>>),
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<Cow<'a, str>>>),
    Blobs(Vec<Cow<'a, [u8]>>),
}

impl Param<'_> {
    pub fn kind(&self) -> Type {
        match self {
            Param::Integer(_) => Type::INT8,
            Param::Number(_) => Type::FLOAT8,
            Param::Text(_) => Type::TEXT,
            Param::Bytes(_) => Type::BYTEA,
            Param::Integers(_) => Type::INT8_ARRAY,
            Param::Numbers(_) => Type::FLOAT8_ARRAY,
            Param::Texts(_) => Type::TEXT_ARRAY,
            Param::Blobs(_) => Type::BYTEA_ARRAY,
        }
    }

    /// About how many bytes it is sent as.
    pub fn bytes(&self) -> usize {
        match self {
            Param::Integer(_) | Param::Number(_) => 8,
            Param::Text(value) => value.as_ref().map_or(0, |text| text.len()),
            Param::Bytes(value) => value.as_ref().map_or(0, |bytes| bytes.len()),
            Param::Integers(values) => values.len() * 12,
            Param::Numbers(values) => values.len() * 12,
            Param::Texts(values) => {
                values.iter().map(|value| 4 + value.as_ref().map_or(0, |text| text.len())).sum()
            }
            Param::Blobs(values) => values.iter().map(|value| 4 + value.len()).sum(),
        }
    }

    /// Without borrowed parts.
    pub fn owned(self) -> Param<'static> {
        let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let bytes = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        match self {
            Param::Integer(value) => Param::Integer(value),
            Param::Number(value) => Param::Number(value),
            Param::Text(value) => Param::Text(value.map(text)),
            Param::Bytes(value) => Param::Bytes(value.map(bytes)),
            Param::Integers(values) => Param::Integers(values),
            Param::Numbers(values) => Param::Numbers(values),
            Param::Texts(values) => {
                Param::Texts(values.into_iter().map(|value| value.map(text)).collect())
            }
            Param::Blobs(values) => Param::Blobs(values.into_iter().map(bytes).collect()),
        }
    }
}

/// A text as it is stored: NUL and U+0001 become two characters each.
pub fn encoded(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte <= 1) {
        return text;
    }
    Cow::Owned(text.replace('\u{1}', "\u{1}\u{2}").replace('\0', "\u{1}\u{1}"))
}

pub fn decoded(text: String) -> String {
    match text.contains('\u{1}') {
        true => text.replace("\u{1}\u{1}", "\0").replace("\u{1}\u{2}", "\u{1}"),
        false => text,
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Param::Integer(value) => value.to_sql(&Type::INT8, out),
            Param::Number(value) => value.to_sql(&Type::FLOAT8, out),
            Param::Text(value) => value.as_deref().to_sql(&Type::TEXT, out),
            Param::Bytes(value) => value.as_deref().to_sql(&Type::BYTEA, out),
            Param::Integers(values) => values.to_sql(&Type::INT8_ARRAY, out),
            Param::Numbers(values) => values.to_sql(&Type::FLOAT8_ARRAY, out),
            Param::Texts(values) => {
                let texts: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
                texts.to_sql(&Type::TEXT_ARRAY, out)
            }
            Param::Blobs(values) => {
                let blobs: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
                blobs.to_sql(&Type::BYTEA_ARRAY, out)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Param::Integer(Some(value))
    }
}

impl From<Option<i64>> for Param<'_> {
    fn from(value: Option<i64>) -> Self {
        Param::Integer(value)
    }
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(value: &'a str) -> Self {
        Param::Text(Some(encoded(Cow::Borrowed(value))))
    }
}

impl<'a> From<&'a String> for Param<'a> {
    fn from(value: &'a String) -> Self {
        Param::from(value.as_str())
    }
}

impl From<String> for Param<'_> {
    fn from(value: String) -> Self {
        Param::Text(Some(encoded(Cow::Owned(value))))
    }
}

impl<'a> From<Option<&'a str>> for Param<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Param::Text(value.map(|text| encoded(Cow::Borrowed(text))))
    }
}

impl<'a> From<&'a [u8]> for Param<'a> {
    fn from(value: &'a [u8]) -> Self {
        Param::Bytes(Some(Cow::Borrowed(value)))
    }
}

impl From<Vec<i64>> for Param<'_> {
    fn from(values: Vec<i64>) -> Self {
        Param::Integers(values.into_iter().map(Some).collect())
    }
}

impl From<Vec<Option<i64>>> for Param<'_> {
    fn from(values: Vec<Option<i64>>) -> Self {
        Param::Integers(values)
    }
}

impl<'a> From<Vec<&'a str>> for Param<'a> {
    fn from(values: Vec<&'a str>) -> Self {
        let texts = values.into_iter().map(|text| Some(encoded(Cow::Borrowed(text))));
        Param::Texts(texts.collect())
    }
}

impl<'a> From<Vec<Option<&'a str>>> for Param<'a> {
    fn from(values: Vec<Option<&'a str>>) -> Self {
        let text = |text: &'a str| encoded(Cow::Borrowed(text));
        Param::Texts(values.into_iter().map(|value| value.map(text)).collect())
    }
}

impl<'a> From<Vec<&'a [u8]>> for Param<'a> {
    fn from(values: Vec<&'a [u8]>) -> Self {
        Param::Blobs(values.into_iter().map(Cow::Borrowed).collect())
    }
}

impl<'a> From<&'a Scalar> for Param<'a> {
    fn from(value: &'a Scalar) -> Self {
        match value {
            Scalar::Null => Param::Text(None),
            Scalar::Integer(whole) => Param::Integer(Some(*whole)),
            Scalar::Number(number) => Param::Number(Some(*number)),
            Scalar::Text(text) => Param::from(text.as_str()),
        }
    }
}

/// The values of a statement.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$($crate::postgres::param::Param::from($value)),*]
            as &[$crate::postgres::param::Param<'_>]
    };
}

pub(crate) use params;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_nul_keep_their_order_and_come_back() {
        let mut texts =
            ["", "\0", "\0a", "\u{1}", "\u{1}\u{1}", "\u{2}", "a", "a\0", "a\u{1}", "b"];
        texts.sort_unstable();
        let stored: Vec<String> =
            texts.iter().map(|text| encoded(Cow::Borrowed(text)).into_owned()).collect();
        assert!(stored.is_sorted(), "{stored:?}");
        assert!(stored.iter().all(|text| !text.contains('\0')));
        let back: Vec<String> = stored.into_iter().map(decoded).collect();
        assert_eq!(back, texts);
    }
}
