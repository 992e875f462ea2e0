// purpose: Make types of relationships and names of properties known before there are any: the server warns of each name in
//   a query that it has never seen. Can be run again at any time.
// param types: types of relationships
// param properties: names of properties

UNWIND $types AS type
CALL db.createRelationshipType(type)
RETURN count(*) AS known;

UNWIND $properties AS property
CALL db.createProperty(property)
RETURN count(*) AS known;
