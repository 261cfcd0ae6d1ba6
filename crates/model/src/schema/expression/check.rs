//! Finds the type of an expression, or says what is wrong with it: unknown names, operators and
//! arguments that the CEL library would refuse when the expression is evaluated, and members that
//! may be null or absent where that would be an error. An expression that passes never fails
//! because of a type.

use super::flow::{self, Facts, Path};
use super::function::{self, Class, FUNCTIONS, Function, NAMESPACE, Style, TYPE_NAMES};
use super::scope::Scope;
use super::shape::{Member, Object, Shape, Type};
use super::words::Words;
use crate::spelling::hint;
use crate::time::{Timestamp, is_date};
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, SourceInfo,
    operators,
};

/// One thing wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// Byte offset in the text of the expression.
    pub at: usize,
    pub message: String,
}

pub(super) struct Checker<'e> {
    info: &'e SourceInfo,
    pub(super) scope: &'e Scope,
    /// The variables of macros such as `all`, innermost last.
    variables: Vec<(String, Type)>,
    complaints: Vec<Complaint>,
}

pub(super) fn check(
    root: &IdedExpr,
    info: &SourceInfo,
    scope: &Scope,
) -> Result<Type, Vec<Complaint>> {
    let mut checker = Checker { info, scope, variables: Vec::new(), complaints: Vec::new() };
    let found = checker.find(root, &Facts::new());
    let mut complaints = checker.complaints;
    match found {
        Some(found) if complaints.is_empty() => Ok(found),
        _ => {
            complaints.sort();
            complaints.dedup();
            Err(complaints)
        }
    }
}

impl Checker<'_> {
    /// The type of a node; none if a complaint about it was added.
    fn find(&mut self, node: &IdedExpr, facts: &Facts) -> Option<Type> {
        match &node.expr {
            Expr::Literal(literal) => self.literal(node, literal),
            Expr::Ident(name) => self.name(node, name, facts),
            Expr::Select(select) if select.test => {
                if flow::path(&select.operand).is_none() {
                    return self.say(node, "has() takes a member, as in `has(record.x)`");
                }
                self.declared_or_say(node, &select.operand, &select.field, facts)?;
                Some(Type::of(Shape::Bool))
            }
            Expr::Select(select) => self.member(node, &select.operand, &select.field, facts),
            Expr::Call(call) => self.call(node, call, facts),
            Expr::List(list) => {
                let mut item = Type::of(Shape::Nothing);
                for element in &list.elements {
                    item = item.join(&self.find(element, facts)?);
                }
                Some(Type::list(item))
            }
            Expr::Map(map) => self.object(node, map, facts),
            Expr::Comprehension(each) => self.each(node, each, facts),
            Expr::Struct(_) | Expr::Unspecified => {
                self.say(node, "messages are not known here; write an object, `{'name': value}`")
            }
        }
    }

    /// As `find`, and says nothing.
    pub(super) fn quiet(&mut self, node: &IdedExpr, facts: &Facts) -> Option<Type> {
        let before = self.complaints.len();
        let found = self.find(node, facts);
        self.complaints.truncate(before);
        found
    }

    pub(super) fn say<T>(&mut self, node: &IdedExpr, message: impl Into<String>) -> Option<T> {
        let at = self.info.offset_for(node.id).map_or(0, |(start, _)| start as usize);
        self.complaints.push(Complaint { at, message: message.into() });
        None
    }

    fn literal(&mut self, node: &IdedExpr, literal: &LiteralValue) -> Option<Type> {
        Some(Type::of(match literal {
            LiteralValue::Null => return Some(Type::null()),
            LiteralValue::Boolean(_) => Shape::Bool,
            LiteralValue::Int(_) => Shape::Int,
            LiteralValue::Double(_) => Shape::Double,
            LiteralValue::String(text) if is_date(text.inner()) => Shape::Date,
            LiteralValue::String(text) if Timestamp::parse(text.inner()).is_some() => {
                Shape::Timestamp
            }
            LiteralValue::String(_) => Shape::Text,
            LiteralValue::UInt(_) => {
                return self.say(node, "whole numbers are written without `u` here");
            }
            LiteralValue::Bytes(_) => {
                return self.say(node, "there are no bytes here; write a string without `b`");
            }
        }))
    }

    fn name(&mut self, node: &IdedExpr, name: &str, facts: &Facts) -> Option<Type> {
        if let Some(known) = facts.get(std::slice::from_ref(&name.to_owned())) {
            return Some(known.clone());
        }
        if let Some(kind) = self.variable(name) {
            return Some(kind);
        }
        if TYPE_NAMES.iter().any(|(known, _)| *known == name) {
            return Some(Type::of(Shape::Type));
        }
        let roots: Vec<&str> = self.scope.roots().collect();
        let near = hint(name, roots.iter().copied());
        let listed: Vec<String> = roots.iter().map(|root| format!("`{root}`")).collect();
        let listed = match listed.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => listed.concat(),
        };
        self.say(
            node,
            format!("unknown name `{name}` in the expression{near}; it can use {listed}"),
        )
    }

    fn variable(&self, name: &str) -> Option<Type> {
        let bound = self.variables.iter().rev().find(|(known, _)| known == name);
        bound.map(|(_, kind)| kind.clone()).or_else(|| self.scope.get(name).cloned())
    }

    /// The facts about a path: from a condition before it, or from its declaration.
    pub(super) fn known(&mut self, path: &Path, facts: &Facts) -> Option<Type> {
        if let Some(found) = facts.get(path) {
            return Some(found.clone());
        }
        match path.as_slice() {
            [name] => self.variable(name),
            [of @ .., name] => {
                let of = self.known(&of.to_vec(), facts)?;
                match of.shape {
                    Shape::Object(object) if !of.nullable => {
                        Some(object.member(name).filter(|member| member.always)?.kind.clone())
                    }
                    _ => None,
                }
            }
            [] => None,
        }
    }

    /// The type that a member has if it is there.
    pub(super) fn declared(&mut self, of: &IdedExpr, name: &str, facts: &Facts) -> Option<Type> {
        let before = self.complaints.len();
        let found = self.declared_or_say(of, of, name, facts);
        self.complaints.truncate(before);
        found
    }

    fn declared_or_say(
        &mut self,
        node: &IdedExpr,
        of: &IdedExpr,
        name: &str,
        facts: &Facts,
    ) -> Option<Type> {
        let kind = self.find(of, facts)?;
        self.not_null(of, &kind)?;
        match &kind.shape {
            Shape::Object(object) => match object.member(name) {
                Some(member) => Some(member.kind.clone()),
                None => self.no_member(node, of, object, name),
            },
            Shape::Map => Some(Type::any()),
            Shape::Nothing => Some(kind),
            Shape::Any => self.untyped(of, "map"),
            shape => self.say(node, format!("{shape} has no member `{name}`")),
        }
    }

    fn no_member<T>(
        &mut self,
        node: &IdedExpr,
        of: &IdedExpr,
        object: &Object,
        name: &str,
    ) -> Option<T> {
        let near = hint(name, object.members.iter().map(|member| member.name.as_str()));
        let of = flow::path(of).map_or_else(|| "the object".to_owned(), |path| flow::show(&path));
        let noun = object.noun;
        self.say(node, format!("`{of}.{name}` names no {noun} declared here{near}"))
    }

    fn member(
        &mut self,
        node: &IdedExpr,
        of: &IdedExpr,
        name: &str,
        facts: &Facts,
    ) -> Option<Type> {
        let path = flow::path(node);
        if let Some(found) = path.as_ref().and_then(|path| facts.get(path)) {
            return Some(found.clone());
        }
        let declared = self.declared_or_say(node, of, name, facts)?;
        let kind = self.quiet(of, facts)?;
        let always = match &kind.shape {
            Shape::Object(object) => object.member(name).is_some_and(|member| member.always),
            shape => *shape == Shape::Nothing,
        };
        if always {
            return Some(declared);
        }
        let shown = path.map_or_else(|| format!("….{name}"), |path| flow::show(&path));
        self.say(node, format!("`{shown}` may be absent; ask first: `has({shown}) && …`"))
    }

    /// Complains where a value that can be null is used as if it could not.
    fn not_null(&mut self, node: &IdedExpr, kind: &Type) -> Option<()> {
        if !kind.nullable || kind.shape == Shape::Any {
            return Some(());
        }
        let message = match flow::path(node) {
            Some(path) if kind.shape != Shape::Null => {
                let shown = flow::show(&path);
                format!("`{shown}` can be null here; ask first: `{shown} != null && …`")
            }
            _ => "this can be null here; ask first: `x != null ? … : …`".to_owned(),
        };
        self.say(node, message)
    }

    fn untyped<T>(&mut self, node: &IdedExpr, example: &str) -> Option<T> {
        let shown = flow::path(node).map_or_else(|| "x".to_owned(), |path| flow::show(&path));
        self.say(
            node,
            format!(
                "the type of `{shown}` is not known here; ask first: `type({shown}) == {example} \
                 && …`"
            ),
        )
    }

    /// The type of an argument that must be of a class, and not null.
    fn argument(
        &mut self,
        node: &IdedExpr,
        class: Class,
        what: &str,
        facts: &Facts,
    ) -> Option<Type> {
        let kind = self.find(node, facts)?;
        if class == Class::Any {
            return Some(kind);
        }
        self.not_null(node, &kind)?;
        match &kind.shape {
            Shape::Nothing => Some(kind),
            Shape::Any => {
                let example = match class {
                    Class::Bool => "bool",
                    Class::Number | Class::Numeric | Class::Whole => "int",
                    Class::Fraction => "double",
                    Class::Texts => "list",
                    Class::Text | Class::Sized | Class::Printable | Class::Any => "string",
                };
                self.untyped(node, example)
            }
            shape if class.takes(shape) => Some(kind),
            shape => {
                let wanted = class.words();
                self.say(node, format!("{what} takes {wanted}; this is {shape}"))
            }
        }
    }

    fn condition(&mut self, node: &IdedExpr, what: &str, facts: &Facts) -> Option<Type> {
        self.argument(node, Class::Bool, what, facts)
    }

    fn call(&mut self, node: &IdedExpr, call: &CallExpr, facts: &Facts) -> Option<Type> {
        let bool = Some(Type::of(Shape::Bool));
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let asked = self.condition(condition, "`?:`", facts);
                let holds = self.given(condition, true, facts);
                let fails = self.given(condition, false, facts);
                let (yes, no) = (self.find(yes, &holds), self.find(no, &fails));
                asked?;
                Some(yes?.join(&no?))
            }
            (name @ (operators::LOGICAL_AND | operators::LOGICAL_OR), [left, right]) => {
                let what = format!("`{}`", function::written(name));
                let one = self.condition(left, &what, facts);
                let facts = self.given(left, name == operators::LOGICAL_AND, facts);
                let two = self.condition(right, &what, &facts);
                one.and(two).and(bool)
            }
            (operators::LOGICAL_NOT, [of]) => self.condition(of, "`!`", facts).and(bool),
            (operators::NEGATE, [of]) => {
                let kind = self.argument(of, Class::Number, "`-`", facts)?;
                Some(kind)
            }
            (name @ (operators::EQUALS | operators::NOT_EQUALS), [left, right]) => {
                let (one, two) = (self.find(left, facts), self.find(right, facts));
                let (one, two) = (one?, two?);
                if !one.meets(&two) {
                    let operator = function::written(name);
                    let same = if operator == "==" { "never equal" } else { "always unequal" };
                    let message = format!("{} and {} are {same}", one.shape, two.shape);
                    return self.say(node, message);
                }
                self.can_equal((left, &one), (right, &two), facts)?;
                bool
            }
            (operators::IN, [item, container]) => self.within(node, item, container, facts),
            (operators::INDEX, [of, key]) => self.index(node, of, key, facts),
            (operators::OPT_INDEX | operators::OPT_SELECT, _) => {
                self.say(node, "optional members are not known here; use has()")
            }
            (name, [left, right]) if name.starts_with('_') => {
                self.binary(node, name, left, right, facts)
            }
            _ => self.function(node, call, facts),
        }
    }

    fn binary(
        &mut self,
        node: &IdedExpr,
        operator: &str,
        left: &IdedExpr,
        right: &IdedExpr,
        facts: &Facts,
    ) -> Option<Type> {
        let (one, two) = (self.find(left, facts), self.find(right, facts));
        let (one, two) = (one?, two?);
        self.not_null(left, &one)?;
        self.not_null(right, &two)?;
        for (side, kind) in [(left, &one), (right, &two)] {
            if kind.shape == Shape::Any {
                return self.untyped(side, "int");
            }
        }
        let written = function::written(operator);
        let zero = matches!(&right.expr, Expr::Literal(LiteralValue::Int(whole)) if **whole == 0);
        if zero && matches!(operator, operators::DIVIDE | operators::MODULO) {
            return self.say(right, format!("`{written}` by zero always fails"));
        }
        if function::is_order(operator) {
            self.is_ordered((written, node), (left, &one), (right, &two))?;
        }
        if let Some(shape) = function::binary(operator, &one.shape, &two.shape) {
            return Some(Type::of(shape));
        }
        let message = match one.shape.is_number() && two.shape.is_number() {
            true if operator == operators::MODULO => {
                "`%` takes integers; write `int(…)` around the number".to_owned()
            }
            true => {
                let side = if one.shape == Shape::Double { (right, &two) } else { (left, &one) };
                let shown = flow::path(side.0);
                let shown = shown.map_or_else(|| "…".to_owned(), |path| flow::show(&path));
                format!(
                    "`{written}` does not mix integers and numbers with a fraction; write \
                     `double({shown})`"
                )
            }
            false => format!("`{written}` is not possible with {} and {}", one.shape, two.shape),
        };
        self.say(node, message)
    }

    fn within(
        &mut self,
        node: &IdedExpr,
        item: &IdedExpr,
        container: &IdedExpr,
        facts: &Facts,
    ) -> Option<Type> {
        let (one, of) = (self.find(item, facts), self.find(container, facts));
        let (one, of) = (one?, of?);
        self.not_null(container, &of)?;
        match &of.shape {
            Shape::List(of) if one.meets(of) => {
                self.is_known(item, of)?;
                self.are_known(container, &one)?;
            }
            Shape::List(of) => {
                let message =
                    format!("{} is never in a list of which an item is {}", one.shape, of.shape);
                return self.say(node, message);
            }
            Shape::Object(object) => {
                self.argument(item, Class::Text, "`in` with an object", facts)?;
                if let Some(name) = flow::text(item).filter(|name| object.member(name).is_none()) {
                    return self.no_member(item, container, object, name);
                }
            }
            Shape::Map => {
                self.argument(item, Class::Text, "`in` with an object", facts)?;
            }
            Shape::Nothing => {}
            Shape::Any => return self.untyped(container, "list"),
            shape => {
                return self.say(node, format!("`in` takes a list or an object; this is {shape}"));
            }
        }
        Some(Type::of(Shape::Bool))
    }

    fn index(
        &mut self,
        node: &IdedExpr,
        of: &IdedExpr,
        key: &IdedExpr,
        facts: &Facts,
    ) -> Option<Type> {
        if let Some(name) = flow::text(key) {
            return self.member(node, of, name, facts);
        }
        let (kind, index) = (self.find(of, facts), self.find(key, facts));
        let (kind, index) = (kind?, index?);
        self.not_null(of, &kind)?;
        self.not_null(key, &index)?;
        match (&kind.shape, &index.shape) {
            (Shape::List(item), Shape::Int) => Some((**item).clone()),
            (Shape::Nothing, _) => Some(kind),
            (Shape::Any, _) => self.untyped(of, "list"),
            (_, Shape::Any) => self.untyped(key, "int"),
            (Shape::List(_), shape) => {
                self.say(key, format!("a list is indexed with an integer; this is {shape}"))
            }
            (Shape::Object(_) | Shape::Map, _) => {
                self.say(key, "a member is named with a literal, as in `record.x['name']`")
            }
            (shape, _) => self.say(node, format!("{shape} cannot be indexed")),
        }
    }

    fn object(&mut self, node: &IdedExpr, map: &MapExpr, facts: &Facts) -> Option<Type> {
        let mut members: Vec<Member> = Vec::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(pair) = &entry.expr else {
                return self.say(node, "an object is written `{'name': value}`");
            };
            let Some(name) = flow::text(&pair.key) else {
                return self.say(&pair.key, "the name of a member is a literal string");
            };
            if members.iter().any(|member| member.name == name) {
                return self.say(&pair.key, format!("`{name}` stands twice in the object"));
            }
            let kind = self.find(&pair.value, facts)?;
            if kind.shape == Shape::Type {
                return self.say(&pair.value, "a type is no value that can be kept");
            }
            members.push(Member::new(name, kind));
        }
        Some(Type::object("member", members))
    }

    fn function(&mut self, node: &IdedExpr, call: &CallExpr, facts: &Facts) -> Option<Type> {
        let target = call.target.as_deref().filter(|target| !self.is_namespace(target));
        let arguments: Vec<&IdedExpr> = target.into_iter().chain(&call.args).collect();
        let style = if target.is_some() { Style::Member } else { Style::Global };
        let name = match target.is_none() && call.target.is_some() {
            true => &format!("{NAMESPACE}.{}", call.func_name),
            false => call.func_name.as_str(),
        };
        let called = || FUNCTIONS.iter().chain(self.scope.functions).filter(|it| it.name == name);
        // One that can be called with more or fewer arguments is in the table once for each.
        let fitting = called().find(|function| function.takes.len() == arguments.len());
        let Some(function) = fitting.or_else(|| called().next()) else {
            return self.no_function(node, name);
        };
        let Function { takes, .. } = function;
        if function.style != Style::Both && function.style != style {
            let form = if style == Style::Member { "f(x)" } else { "x.f(…)" };
            let form = form.replace('f', name);
            return self.say(node, format!("{name} is called as `{form}`"));
        }
        if arguments.len() != takes.len() {
            let (wanted, got) = (takes.len(), arguments.len());
            let given = format!("{name} takes {wanted} values, the target included, not {got}");
            return self.say(node, given);
        }
        let mut fits = Some(());
        for (argument, class) in arguments.iter().zip(*takes) {
            let found = self.argument(argument, *class, &format!("{name}()"), facts);
            fits = fits.and(found.map(|_| ()));
        }
        if name == "matches" {
            self.pattern(arguments[1])?;
        }
        fits?;
        if let [target, part] = arguments[..] {
            self.is_part(name, (target, part), facts)?;
        }
        if let ("string", [text]) = (name, &arguments[..])
            && let Some(kind) =
                self.quiet(text, facts).filter(|kind| matches!(kind.shape, Shape::Words(_)))
        {
            // The text itself, which is still out of the same list.
            return Some(kind);
        }
        Some(function.gives())
    }

    /// Whether this is the `math` of `math.round`.
    fn is_namespace(&self, node: &IdedExpr) -> bool {
        let named = matches!(&node.expr, Expr::Ident(name) if name == NAMESPACE);
        named && !self.scope.functions.is_empty() && self.variable(NAMESPACE).is_none()
    }

    fn no_function<T>(&mut self, node: &IdedExpr, name: &str) -> Option<T> {
        let macros = ["has", "all", "exists", "exists_one", "map", "filter"];
        if macros.contains(&name) {
            return self.say(node, format!("{name} is called with other arguments than these"));
        }
        let known = FUNCTIONS.iter().chain(self.scope.functions).map(|function| function.name);
        let near = hint(name, known.chain(macros));
        self.say(node, format!("the expression calls '{name}', which does not exist{near}"))
    }

    /// A pattern from a record could be no pattern, which nobody would notice before it is used.
    fn pattern(&mut self, node: &IdedExpr) -> Option<()> {
        let Some(pattern) = flow::text(node) else {
            return self.say(node, "the pattern of matches() must be a literal string");
        };
        match regex::Regex::new(pattern) {
            Ok(_) => Some(()),
            Err(error) => {
                let error = error.to_string();
                let reason = error.lines().last().unwrap_or_default().trim();
                let reason = reason.strip_prefix("error: ").unwrap_or(reason);
                self.say(node, format!("not a regular expression: {reason}"))
            }
        }
    }

    /// The expansion of the macros `all`, `exists`, `exists_one`, `map` and `filter`.
    fn each(&mut self, node: &IdedExpr, each: &ComprehensionExpr, facts: &Facts) -> Option<Type> {
        let range = self.find(&each.iter_range, facts)?;
        self.not_null(&each.iter_range, &range)?;
        let item = match &range.shape {
            Shape::List(item) => (**item).clone(),
            Shape::Object(object) => {
                Words::kind(object.noun, object.members.iter().map(|member| member.name.as_str()))
            }
            Shape::Map => Type::of(Shape::Text),
            Shape::Nothing => range.clone(),
            Shape::Any => return self.untyped(&each.iter_range, "list"),
            shape => {
                return self.say(node, format!("a macro goes through a list; this is {shape}"));
            }
        };
        let name = &each.iter_var;
        let is_type = function::named(name).is_some();
        if self.variable(name).is_some() || is_type || name.starts_with('.') {
            return self.say(node, format!("`{name}` has a meaning already; choose another name"));
        }
        self.variables.push((name.clone(), item));
        let found = self.expanded(node, each, facts);
        self.variables.pop();
        found
    }

    fn expanded(
        &mut self,
        node: &IdedExpr,
        each: &ComprehensionExpr,
        facts: &Facts,
    ) -> Option<Type> {
        let Expr::Call(step) = &each.loop_step.expr else {
            return self.say(node, "this macro is not known here");
        };
        match (&each.accu_init.expr, step.func_name.as_str(), step.args.as_slice()) {
            // all, exists: `@result && body`.
            (
                Expr::Literal(LiteralValue::Boolean(_)),
                operators::LOGICAL_AND | operators::LOGICAL_OR,
                [_, body],
            )
            // exists_one: `body ? @result + 1 : @result`.
            | (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [body, ..]) => {
                self.condition(body, "the condition of a macro", facts)?;
                Some(Type::of(Shape::Bool))
            }
            // map: `@result + [value]`.
            (Expr::List(_), operators::ADD, [_, value]) => self.find(value, facts),
            // filter, and map with a condition: `condition ? @result + [value] : @result`.
            (Expr::List(_), operators::CONDITIONAL, [condition, appended, _]) => {
                self.condition(condition, "the condition of a macro", facts)?;
                let facts = self.given(condition, true, facts);
                match &appended.expr {
                    Expr::Call(call) if call.args.len() == 2 => self.find(&call.args[1], &facts),
                    _ => self.say(node, "this macro is not known here"),
                }
            }
            _ => self.say(node, "this macro is not known here"),
        }
    }
}
