"""Write the documents that are made from the code; tests fail where the files differ."""

from tests.documents import families, openapi, uploads, vectors

for path, text in (openapi.documents() | vectors.documents() | families.documents() | uploads.documents()).items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
