import instructor
import openai
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int


client = instructor.from_openai(openai.OpenAI())
print(
    client.chat.completions.create(
        model="gpt-4o", response_model=Person, messages=[{"role": "user", "content": "Ada is 36"}]
    )
)
