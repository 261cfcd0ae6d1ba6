//! Actions in every version: their parameters, and their effect on a record.

use super::generate::ACTION;
use super::{Happened, Kept, World};

impl World<'_> {
    /// Calls the action of a record, if it has one.
    pub fn act(&mut self, version: usize, place: usize) {
        let kept = self.records[place].clone();
        let it = self.collection(kept.collection);
        let Some(action) = &it.action else { return };
        let params = action.form.shapes[version].body(&mut self.chance);
        let fields = action.done(version, &kept.fields, &params).unwrap();
        let about = format!("{ACTION} of {}", self.about(version, kept.collection));
        let path = format!("{}/{ACTION}", self.path(&kept));
        let answer = self.ask(version, "POST", &path, Some(&params));
        assert_eq!(answer.status, 200, "{about}: {params:?}: {}", answer.text);
        let assigned = self.assigned(kept.collection, &answer.json);
        let after = Kept { fields, assigned, ..kept.clone() };
        assert_eq!(answer.json, self.shown(version, &after), "{about}: {params:?}");
        let (kind, before) = (format!("{}.{ACTION}", it.object), Some(kept.fields));
        self.log.push(Happened { kind, before, after: after.clone() });
        self.records[place] = after;
        self.read_in_all(place);
    }
}
