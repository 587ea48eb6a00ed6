//! Tables and numbers for a person.

/// Rows under their headings. A column whose cells are all numbers stands to the right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of as many cells as there are headings.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    /// The text, with a newline after each row and no spaces at line ends.
    pub(crate) fn render(&self) -> String {
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let columns: Vec<(usize, bool)> = (0..self.headings.len())
            .map(|column| {
                let cells = self
                    .rows
                    .iter()
                    .map(|row| cell(row, column).chars().count());
                let width = cells
                    .chain([self.headings[column].len()])
                    .max()
                    .unwrap_or(0);
                let right = self.rows.iter().all(|row| is_number(&cell(row, column)));
                (width, right && !self.rows.is_empty())
            })
            .collect();
        let headings: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
        let rows = std::iter::once(&headings).chain(&self.rows);
        rows.map(|row| line(row, &columns)).collect()
    }
}

/// A table whose rows are printed as they come: a column is as wide as its widest cell so far.
#[derive(Debug)]
pub(crate) struct RowByRow {
    headings: Vec<&'static str>,
    /// Width of each column, and whether its cells stand to the right; empty before the first row.
    columns: Vec<(usize, bool)>,
}

impl RowByRow {
    /// A table without rows, of which nothing is printed.
    pub(crate) fn new(headings: Vec<&'static str>) -> Self {
        Self {
            headings,
            columns: Vec::new(),
        }
    }

    /// The line of a row; before it, that of the headings for the first one.
    pub(crate) fn row(&mut self, cells: &[String]) -> String {
        debug_assert_eq!(cells.len(), self.headings.len());
        let first = self.columns.is_empty();
        if first {
            let of = |(heading, cell): (&&str, &String)| (heading.len(), is_number(cell));
            self.columns = self.headings.iter().zip(cells).map(of).collect();
        }
        for ((width, _), cell) in self.columns.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
        let mut text = String::new();
        if first {
            let headings: Vec<String> = self.headings.iter().map(ToString::to_string).collect();
            text = line(&headings, &self.columns);
        }
        text + &line(cells, &self.columns)
    }
}

/// A line of cells, each as wide as its column and to its side.
fn line(cells: &[String], columns: &[(usize, bool)]) -> String {
    let padded: Vec<String> = cells
        .iter()
        .zip(columns)
        .map(|(cell, (width, right))| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        })
        .collect();
    format!("{}\n", padded.join("  ").trim_end())
}

fn is_number(cell: &str) -> bool {
    let mut chars = cell.chars();
    let first = chars.next();
    cell == "-" || first.is_some_and(|c| c.is_ascii_digit()) && !cell.contains(':')
}

/// A whole number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_numbers_right_and_text_left() {
        let mut table = Table::new(&["TOPIC", "PARTS", "STATE"]);
        table.row(vec!["a".into(), "8".into(), "active".into()]);
        table.row(vec!["longer-name".into(), "1,000".into(), "-".into()]);
        let expected = "TOPIC        PARTS  STATE\n\
                        a                8  active\n\
                        longer-name  1,000  -\n";
        assert_eq!(table.render(), expected);
        assert_eq!(Table::new(&["A", "B"]).render(), "A  B\n");
    }

    #[test]
    fn row_by_row_columns_grow_with_their_cells() {
        let mut table = RowByRow::new(vec!["OFFSET", "KEY", "VALUE"]);
        let mut row = |cells: [&str; 3]| table.row(&cells.map(str::to_owned));
        assert_eq!(row(["7", "a", "x"]), "OFFSET  KEY  VALUE\n     7  a    x\n");
        assert_eq!(row(["8", "longer", "y"]), "     8  longer  y\n");
        assert_eq!(row(["9", "b", "z"]), "     9  b       z\n");
    }

    #[test]
    fn numbers_are_written_for_a_person() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (336_776, "336,776"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
