//! Values of GGUF metadata: scalars, strings, and arrays of one type, which may be nested.

use std::fmt;

/// Scalar types: name, Rust's type, number in files, whether an integer.
macro_rules! for_scalars {
    ($with:ident) => {
        $with! {
            U8 u8 0, I8 i8 1, U16 u16 2, I16 i16 3, U32 u32 4, I32 i32 5, F32 f32 6,
            U64 u64 10, I64 i64 11, F64 f64 12
        }
    };
}
pub(super) use for_scalars;

/// The numbers of the types that are no scalars.
pub(super) const BOOL: u32 = 7;
pub(super) const STRING: u32 = 8;
pub(super) const ARRAY: u32 = 9;

macro_rules! values {
    ($($name:ident $type:ident $number:literal),*) => {
        /// A value of the metadata.
        ///
        /// ```
        /// use wootz::io::gguf::{Value, Values};
        /// let heads = Value::from(32u32);
        /// assert_eq!((heads.as_u64(), heads.as_str()), (Some(32), None));
        /// assert_eq!(Value::from("llama").as_str(), Some("llama"));
        /// assert_eq!(Value::from(vec![1.0f32, 2.0]).as_array().map(Values::len), Some(2));
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value {
            $(
                #[doc = concat!("A number, `", stringify!($type), "`.")]
                $name($type),
            )*
            /// True or false.
            Bool(bool),
            /// Text.
            String(String),
            /// Values of one type.
            Array(Values),
        }

        /// An array of the metadata: values of one type.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Values {
            $(
                #[doc = concat!("Numbers, `", stringify!($type), "`.")]
                $name(Vec<$type>),
            )*
            /// Truth values.
            Bool(Vec<bool>),
            /// Texts.
            String(Vec<String>),
            /// Arrays, each of its own type and length.
            Array(Vec<Values>),
        }

        impl Value {
            /// The type's number in files.
            pub(super) fn number(&self) -> u32 {
                match self {
                    $(Value::$name(_) => $number,)*
                    Value::Bool(_) => BOOL,
                    Value::String(_) => STRING,
                    Value::Array(_) => ARRAY,
                }
            }
        }

        impl Values {
            /// The element type's number in files.
            pub(super) fn number(&self) -> u32 {
                match self {
                    $(Values::$name(_) => $number,)*
                    Values::Bool(_) => BOOL,
                    Values::String(_) => STRING,
                    Values::Array(_) => ARRAY,
                }
            }

            /// How many values there are.
            pub fn len(&self) -> usize {
                match self {
                    $(Values::$name(values) => values.len(),)*
                    Values::Bool(values) => values.len(),
                    Values::String(values) => values.len(),
                    Values::Array(values) => values.len(),
                }
            }

            /// The value at `index`.
            pub fn get(&self, index: usize) -> Option<Value> {
                match self {
                    $(Values::$name(values) => values.get(index).copied().map(Value::$name),)*
                    Values::Bool(values) => values.get(index).copied().map(Value::Bool),
                    Values::String(values) => values.get(index).cloned().map(Value::String),
                    Values::Array(values) => values.get(index).cloned().map(Value::Array),
                }
            }
        }

        impl fmt::Display for Value {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Value::$name(value) => value.fmt(f),)*
                    Value::Bool(value) => value.fmt(f),
                    Value::String(value) => fmt::Debug::fmt(value, f),
                    Value::Array(values) => values.fmt(f),
                }
            }
        }

        $(conversions!($name $type);)*
    };
}

macro_rules! conversions {
    ($name:ident $type:ty) => {
        impl From<$type> for Value {
            fn from(value: $type) -> Value {
                Value::$name(value)
            }
        }

        impl From<Vec<$type>> for Value {
            fn from(values: Vec<$type>) -> Value {
                Value::Array(Values::$name(values))
            }
        }
    };
}

for_scalars!(values);
conversions!(Bool bool);
conversions!(String String);

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_string())
    }
}

impl Value {
    /// A number that is whole and not negative, of whatever integer type.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_i128()?.try_into().ok()
    }

    /// A whole number of whatever integer type.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_i128()?.try_into().ok()
    }

    fn as_i128(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(value) => value.into(),
            Value::I8(value) => value.into(),
            Value::U16(value) => value.into(),
            Value::I16(value) => value.into(),
            Value::U32(value) => value.into(),
            Value::I32(value) => value.into(),
            Value::U64(value) => value.into(),
            Value::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// A number of either float type, or a whole one.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(value) => Some(value.into()),
            Value::F64(value) => Some(value),
            _ => self.as_i128().map(|value| value as f64),
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// Text.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// An array.
    pub fn as_array(&self) -> Option<&Values> {
        if let Value::Array(values) = self { Some(values) } else { None }
    }
}

impl Values {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values one by one.
    pub fn iter(&self) -> impl Iterator<Item = Value> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The texts of an array of strings, as a vocabulary has them.
    pub fn as_strings(&self) -> Option<&[String]> {
        if let Values::String(texts) = self { Some(texts) } else { None }
    }
}

impl fmt::Display for Values {
    /// The first few, and how many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        f.write_str("[")?;
        for (index, value) in self.iter().take(SHOWN).enumerate() {
            write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
        }
        match self.len() {
            0..=SHOWN => f.write_str("]"),
            length => write!(f, ", … {length} values]"),
        }
    }
}
