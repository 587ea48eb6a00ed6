//! `CREATE TABLE` and `CREATE JOB`. Parsed by DataFusion's own parser, without a fork of it: what it does not know (`CREATE JOB`,
//! `EMIT ..`) is cut off before (compute.md C3).

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{
    self, Expr, GroupByExpr, Ident, ObjectName, Query, Select, SetExpr, SqlOption, TableAlias,
    TableFactor, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::call::windowed;
use crate::refusal::PlanError;
use crate::table::TopicTable;
use crate::window::Window;

/// When results come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emit {
    /// Once per window and group, when the watermark has passed its end. `EMIT FINAL`, `EMIT ON WINDOW CLOSE`; the default with a
    /// window.
    Final,
    /// After each epoch, for each group that it touched; the sink's key tells which row is replaced. `EMIT CHANGES`; the only one
    /// without a window.
    Changes,
}

/// A `CREATE JOB`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobStatement {
    /// The job's name.
    pub name: String,
    /// What stands behind `WITH`, for whoever runs the job.
    pub options: BTreeMap<String, String>,
    /// When results come out; none: as the query's shape has it.
    pub emit: Option<Emit>,
    /// Table that is written.
    pub sink: String,
    /// Table that is read.
    pub source: String,
    /// Its windows and the column that they are of.
    pub window: Option<(Window, String)>,
    /// The query over one table of that name, which has columns `window_start` and `window_end` if there is a window.
    pub(crate) query: Query,
    /// Names that stand in the query, to know which columns of metadata it needs.
    pub(crate) words: Vec<String>,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `CREATE TABLE`.
    Table(TopicTable),
    /// `CREATE JOB`.
    Job(Box<JobStatement>),
}

/// Longest statement, bytes.
const SQL_BYTES_MAX: usize = 1 << 20;

impl Statement {
    /// Parses one statement.
    ///
    /// # Errors
    /// [`PlanError`]: not SQL, or not one that a job can be.
    pub fn parse(sql: &str) -> Result<Self, PlanError> {
        if sql.len() > SQL_BYTES_MAX {
            return Err(PlanError::invalid(format!(
                "a statement of {} bytes is longer than {SQL_BYTES_MAX}",
                sql.len()
            )));
        }
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
        let mut tokens = tokens.map_err(|error| PlanError::Syntax(error.to_string()))?;
        tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
        while tokens.last() == Some(&Token::SemiColon) {
            tokens.pop();
        }
        match is_word(tokens.get(1), "job") && is_word(tokens.first(), "create") {
            true => job(tokens).map(|job| Self::Job(Box::new(job))),
            false => table(tokens),
        }
    }
}

impl From<ParserError> for PlanError {
    fn from(error: ParserError) -> Self {
        Self::Syntax(error.to_string())
    }
}

fn is_word(token: Option<&Token>, word: &str) -> bool {
    matches!(token, Some(Token::Word(found)) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// A name as DataFusion takes it: small letters unless it is quoted.
pub(crate) fn folded(name: &Ident) -> String {
    match name.quote_style {
        None => name.value.to_lowercase(),
        Some(_) => name.value.clone(),
    }
}

fn simple(name: &ObjectName) -> Result<String, PlanError> {
    match &name.0[..] {
        [part] => part.as_ident().map(folded),
        _ => None,
    }
    .ok_or_else(|| {
        PlanError::invalid(format!(
            "{name} is not the name of a table; a table has one part"
        ))
    })
}

fn options(list: Vec<SqlOption>) -> Result<BTreeMap<String, String>, PlanError> {
    let mut options = BTreeMap::new();
    for option in list {
        let (key, value) = match &option {
            SqlOption::KeyValue { key, value } => (folded(key), text(value)),
            _ => {
                return Err(PlanError::invalid(format!(
                    "option {option} is not written as name = 'value'"
                )));
            }
        };
        let value = value
            .ok_or_else(|| PlanError::invalid(format!("option {key} needs a quoted value")))?;
        if options.insert(key.clone(), value).is_some() {
            return Err(PlanError::invalid(format!("option {key} stands twice")));
        }
    }
    Ok(options)
}

/// The text of a literal.
pub(crate) fn text(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn table(tokens: Vec<Token>) -> Result<Statement, PlanError> {
    let mut parser = Parser::new(&GenericDialect {}).with_tokens(tokens);
    let statement = parser.parse_statement()?;
    end(&parser)?;
    let ast::Statement::CreateTable(create) = statement else {
        return Err(PlanError::unsupported(
            first_words(&statement.to_string()),
            "there are CREATE TABLE and CREATE JOB",
        ));
    };
    let with = match create.table_options {
        ast::CreateTableOptions::With(list) => options(list)?,
        ast::CreateTableOptions::None => BTreeMap::new(),
        other => {
            return Err(PlanError::invalid(format!(
                "write options of a table as WITH (..), not {other}"
            )));
        }
    };
    if create.query.is_some() || !create.constraints.is_empty() {
        return Err(PlanError::unsupported(
            "CREATE TABLE with a query or a constraint",
            "a table says what a topic holds",
        ));
    }
    TopicTable::new(simple(&create.name)?, &create.columns, with).map(Statement::Table)
}

fn first_words(text: &str) -> String {
    text.split_whitespace()
        .take(2)
        .collect::<Vec<_>>()
        .join(" ")
}

fn end(parser: &Parser<'_>) -> Result<(), PlanError> {
    match parser.peek_token().token {
        Token::EOF => Ok(()),
        other => Err(PlanError::Syntax(format!(
            "{other} stands behind the statement"
        ))),
    }
}

/// Cuts `EMIT ..` off the end.
fn emit(tokens: &mut Vec<Token>) -> Option<Emit> {
    let word = |back: usize, word: &str| {
        is_word(
            tokens.len().checked_sub(back).and_then(|at| tokens.get(at)),
            word,
        )
    };
    let (emit, words) = if word(2, "emit") && word(1, "changes") {
        (Emit::Changes, 2)
    } else if word(2, "emit") && word(1, "final") {
        (Emit::Final, 2)
    } else if word(4, "emit") && word(3, "on") && word(2, "window") && word(1, "close") {
        (Emit::Final, 4)
    } else {
        return None;
    };
    tokens.truncate(tokens.len() - words);
    Some(emit)
}

fn job(mut tokens: Vec<Token>) -> Result<JobStatement, PlanError> {
    let emit = emit(&mut tokens);
    let words = tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    });
    let words = words.collect();
    let mut parser = Parser::new(&GenericDialect {}).with_tokens(tokens);
    parser.expect_keyword(Keyword::CREATE)?;
    parser.next_token(); // `JOB` was seen.
    let name = folded(&parser.parse_identifier()?);
    let options = options(parser.parse_options(Keyword::WITH)?)?;
    parser.expect_keyword(Keyword::AS)?;
    let statement = parser.parse_statement()?;
    end(&parser)?;
    let ast::Statement::Insert(insert) = statement else {
        return Err(PlanError::unsupported(
            first_words(&statement.to_string()),
            "a job is INSERT INTO .. SELECT",
        ));
    };
    if !insert.columns.is_empty() || insert.returning.is_some() || insert.on.is_some() {
        return Err(PlanError::unsupported(
            "INSERT with columns, ON or RETURNING",
            "select all columns of the sink in their order",
        ));
    }
    let ast::TableObject::TableName(sink) = &insert.table else {
        return Err(PlanError::unsupported(
            "INSERT INTO a function",
            "a job writes a topic",
        ));
    };
    let sink = simple(sink)?;
    let mut query = *insert
        .source
        .ok_or_else(|| PlanError::invalid("INSERT INTO needs a SELECT"))?;
    let (source, window) = source(&mut query)?;
    Ok(JobStatement {
        name,
        options,
        emit,
        sink,
        source,
        window,
        query,
        words,
    })
}

/// Checks the form of a query and puts a plain table where a window function stands.
fn source(query: &mut Query) -> Result<(String, Option<(Window, String)>), PlanError> {
    refuse_tail(query)?;
    let select = match query.body.as_mut() {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { op, .. } => {
            return Err(PlanError::unsupported(
                op.to_string(),
                "make one job for each part",
            ));
        }
        _ => {
            return Err(PlanError::unsupported(
                "a query without SELECT",
                "a job is INSERT INTO .. SELECT",
            ));
        }
    };
    refuse_clauses(select)?;
    let [from] = &mut select.from[..] else {
        return Err(PlanError::unsupported(
            "FROM with several tables, or with none",
            "joins are not there yet",
        ));
    };
    if !from.joins.is_empty() {
        return Err(PlanError::unsupported("JOIN", "not yet"));
    }
    let relation = &mut from.relation;
    let (source, window, alias) = read(relation)?;
    *relation = plain(&source, alias);
    Ok((source, window))
}

/// What stands in `FROM`: a table, its windows, and the name that the query gives it.
type Read = (String, Option<(Window, String)>, Option<TableAlias>);

fn read(relation: &TableFactor) -> Result<Read, PlanError> {
    Ok(match relation {
        TableFactor::Table {
            version: Some(_), ..
        } => {
            return Err(PlanError::unsupported(
                "FOR SYSTEM_TIME",
                "not yet; it would be read as of now",
            ));
        }
        TableFactor::Table {
            sample: Some(_), ..
        } => return Err(PlanError::unsupported("TABLESAMPLE", "filter with WHERE")),
        TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } => (simple(name)?, None, alias.clone()),
        TableFactor::Table {
            name,
            alias,
            args: Some(args),
            ..
        } => {
            let (source, window) = windowed(&simple(name)?, &args.args)?;
            (source, Some(window), alias.clone())
        }
        TableFactor::TableFunction {
            expr: Expr::Function(function),
            alias,
        } => {
            let ast::FunctionArguments::List(list) = &function.args else {
                return Err(PlanError::Syntax(function.to_string()));
            };
            let (source, window) = windowed(&simple(&function.name)?, &list.args)?;
            (source, Some(window), alias.clone())
        }
        TableFactor::Derived { .. } => {
            return Err(PlanError::unsupported("a subquery in FROM", "not yet"));
        }
        other => {
            return Err(PlanError::unsupported(
                other.to_string(),
                "a job reads a topic",
            ));
        }
    })
}

fn plain(name: &str, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::Table {
        name: ObjectName::from(vec![Ident::with_quote('"', name)]),
        alias,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

fn refuse_tail(query: &Query) -> Result<(), PlanError> {
    let refuse = |what: &str, reason| Err(PlanError::unsupported(what, reason));
    if query.with.is_some() {
        return refuse("WITH", "not yet; make a job for each step");
    }
    if query.order_by.is_some() {
        return refuse(
            "ORDER BY",
            "a stream has no end; order where the sink is read",
        );
    }
    if query.limit_clause.is_some() || query.fetch.is_some() {
        return refuse("LIMIT", "a stream has no end; write a window");
    }
    let odd = !query.locks.is_empty()
        || query.for_clause.is_some()
        || query.settings.is_some()
        || query.format_clause.is_some()
        || !query.pipe_operators.is_empty();
    match odd {
        true => refuse("a clause behind the query", "a job has none"),
        false => Ok(()),
    }
}

fn refuse_clauses(select: &Select) -> Result<(), PlanError> {
    let refuse = |what: &str, reason| Err(PlanError::unsupported(what, reason));
    if select.distinct.is_some() {
        return refuse("DISTINCT", "not yet; write GROUP BY with EMIT CHANGES");
    }
    if select.top.is_some() {
        return refuse("TOP", "a stream has no end; write a window");
    }
    if select.qualify.is_some() || !select.named_window.is_empty() {
        return refuse("QUALIFY", "not yet");
    }
    match &select.group_by {
        GroupByExpr::All(_) => return refuse("GROUP BY ALL", "name the groups"),
        GroupByExpr::Expressions(_, modifiers) if !modifiers.is_empty() => {
            return refuse(
                "WITH ROLLUP, CUBE or TOTALS",
                "not yet; make one job for each set",
            );
        }
        GroupByExpr::Expressions(..) => {}
    }
    let odd = select.into.is_some()
        || select.prewhere.is_some()
        || !select.lateral_views.is_empty()
        || !select.connect_by.is_empty()
        || !select.cluster_by.is_empty()
        || !select.distribute_by.is_empty()
        || !select.sort_by.is_empty();
    match odd {
        true => refuse(
            "a clause of another system",
            "write SELECT, FROM, WHERE, GROUP BY, HAVING",
        ),
        false => Ok(()),
    }
}
