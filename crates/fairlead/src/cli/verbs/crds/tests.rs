#[test]
fn every_definition_is_a_document_of_its_own() {
    let text = super::text().unwrap();
    let documents: Vec<serde_json::Value> = text
        .split("---\n")
        .filter(|document| !document.is_empty())
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    assert_eq!(documents.len(), objects::kinds::definitions().len());
    for document in documents {
        assert_eq!(document["kind"], "CustomResourceDefinition");
        assert_eq!(document["spec"]["group"], "fairlead.dev");
    }
}
